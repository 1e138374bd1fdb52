"""What cannot be seen from here: the GPU, the workers, the model's layers, another vLLM's rules.

Rule: what is not known is said, and never counted as a yes.
"""

from collections.abc import Iterator

from vllm_av.config.block import BLOCK
from vllm_av.drafters import SUPPORTED
from vllm_av.preflight.facts import Setup
from vllm_av.preflight.reasons import Reason, ReasonCode
from vllm_av.preflight.rules.words import caution, unknown

_PATCHED_IMAGE = (
    "take an image made with vllm_av's ci/Dockerfile, or another in which `vllm-av patch apply` "
    "was run, and name its vLLM"
)


def gpu(setup: Setup) -> Iterator[Reason]:
    """Backends and graphs hang on it."""
    if setup.gpu is None and setup.executor != "ray":
        yield unknown(
            ReasonCode.GPU,
            asked="the attention backends of the GPU here",
            found="none is visible",
            where="--gpu auto",
            fix="name the GPU that it will run on, such as --gpu h100 or --gpu sm100",
        )


def elsewhere(setup: Setup) -> Iterator[Reason]:
    """Ray's workers run where Ray puts them."""
    if setup.gpu is None and setup.executor == "ray":
        yield unknown(
            ReasonCode.ELSEWHERE,
            asked="workers that Ray places",
            found="their GPUs cannot be seen from here; each worker checks again before its "
            "weights are loaded",
            where=setup.place("distributed_executor_backend", "--distributed-executor-backend"),
            fix="name their GPU, such as --gpu h100",
        )


def model(setup: Setup) -> Iterator[Reason]:
    """Its layers decide about backends."""
    if not setup.target.groups:
        yield unknown(
            ReasonCode.MODEL,
            asked=f"the attention layers of {setup.target.architecture}",
            found="this package does not know this architecture",
            where=setup.target.source,
            fix="start it: a patched vLLM checks the layers that it builds before their weights "
            "are loaded",
        )


def version(setup: Setup) -> Iterator[Reason]:
    """Rules and tables are of a version."""
    here = "the installed vLLM"
    if setup.vllm not in SUPPORTED:
        yield unknown(
            ReasonCode.VERSION,
            asked=f"vLLM {setup.vllm}",
            found=f"this package knows the rules of {' and '.join(SUPPORTED)}",
            where=setup.place("vllm", here),
            fix=f"install one of these, or ask about one: --vllm-version {SUPPORTED[-1]}",
        )
    elif not setup.vllm_is_known:
        yield unknown(
            ReasonCode.VERSION,
            asked="the vLLM of an image",
            found=f"it is taken for {setup.vllm}; the image may hold another one, and an official "
            "one is not patched",
            where=setup.place("vllm", here),
            fix=f"{_PATCHED_IMAGE}: --vllm-version {setup.vllm}",
        )
    elif not setup.patched and setup.speculative.get(BLOCK) is None:
        yield caution(
            ReasonCode.VERSION,
            asked=f"vLLM {setup.vllm} without this package's series",
            found="its own estimator, its selector that looks at half of the conditions, its "
            f"refusals one at a time{''.join(_faults(setup))}",
            where=setup.place("vllm", here),
            fix="run `vllm-av patch apply`"
            if setup.place("vllm", here) == here
            else f"{_PATCHED_IMAGE}: --vllm-version {setup.vllm}",
        )


def _faults(setup: Setup) -> Iterator[str]:
    """What the series mends that this setup meets."""
    ranks = setup.tensor_parallel_size * setup.prefill_context_parallel_size
    if ranks > 1:
        yield (
            f", {ranks} ranks that decide each for itself which drafts to verify, so that a "
            "difference in the last bits ends in wrong tokens or a hang"
        )
    if setup.target.experts:
        yield ", costs of verified tokens that are measured on padding, which experts skip"


RULES = (version, model, gpu, elsewhere)
