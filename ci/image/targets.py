"""The images there are: which image each is made from, and what is applied to it.

Rule: each is a stage of ``ci/Dockerfile`` of the same name, and the base is its default there.
"""

from dataclasses import dataclass

VLLM = "0.33.0"


@dataclass(frozen=True)
class Target:
    """One image.

    Args:
        base: the image of the vLLM project that it is made from.
        vllm: the version in it, without what stands after a plus sign.
        groups: the patch groups that fit it.
        needs: what those groups need beside the wheel's own dependencies.
        title: for people, in the image's labels.
    """

    name: str
    base: str
    vllm: str
    groups: tuple[str, ...]
    needs: tuple[str, ...]
    title: str


GPU = Target(
    "gpu",
    f"docker.io/vllm/vllm-openai:v{VLLM}",
    VLLM,
    ("core",),
    (),
    "vLLM with adaptive verification by vllm_av",
)
CPU = Target(
    "cpu",
    f"docker.io/vllm/vllm-openai-cpu:v{VLLM}",
    VLLM,
    ("core", "cpu"),
    ("llvmlite",),
    "vLLM for CPUs with adaptive verification by vllm_av",
)
TARGETS = {target.name: target for target in (GPU, CPU)}
