"""A server in a container: its vLLM is the image's, its variables are those that it is handed; and
of which GPU an answer is where none is named."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.preflight.rules.checkpoints import write
from vllm_av import machine
from vllm_av.preflight.backends import gpus
from vllm_av.preflight.check import Answer, Ways, check
from vllm_av.preflight.facts import Gpu
from vllm_av.preflight.flags import pasted
from vllm_av.preflight.question import Question
from vllm_av.preflight.reasons import Weight

HANDED = "VLLM_USE_V2_MODEL_RUNNER"


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The flags of a server that may; here are a patched vLLM 0.33.0 for the CPU, and no GPU."""
    monkeypatch.setattr("vllm_av.preflight.installed._look", lambda: ("0.33.0", "applied"))
    monkeypatch.setattr(gpus, "here", lambda: Gpu("cpu", "cpu", 0, 0))
    bare = replace(machine.look(), gpus=())
    monkeypatch.setattr(gpus, "look", lambda: bare)
    spec = {
        "method": "eagle",
        "model": write(tmp_path, "llama-3-8b-eagle"),
        "num_speculative_tokens": 3,
        "enable_adaptive_verification": True,
    }
    model = write(tmp_path, "llama-3.1-8b")
    return [model, "--speculative-config", json.dumps(spec), "--max-num-seqs", "32"]


def ask(
    before: str, served: list[str], gpu: str = "h100", vllm: str | None = None, **host: str
) -> Answer:
    """The answer to a line that somebody pasted."""
    line = pasted([*before.split(), *served])
    question = Question(line.args, gpu=gpu, vllm=vllm, environment=host).started_by(line)
    return check(question, Ways.TABLE)


def told(answer: Answer) -> list[tuple[str, Weight]]:
    return [(str(reason.code), reason.weight) for reason in answer.reasons]


@pytest.mark.parametrize(
    ("image", "version", "patched", "weight"),
    [
        ("vllm/vllm-openai:v0.33.0", "0.33.0", False, Weight.CAUTION),
        ("docker.io/vllm/vllm-openai-rocm:v0.32.0-x86_64", "0.32.0", False, Weight.CAUTION),
        ("vllm/vllm-openai:v0.10.0", "0.10.0", False, Weight.UNKNOWN),
        ("vllm/vllm-openai:v0.33.0rc1", "0.33.0rc1", False, Weight.UNKNOWN),
        ("vllm/vllm-openai:latest", "0.33.0", False, Weight.UNKNOWN),
        ("vllm/vllm-openai", "0.33.0", False, Weight.UNKNOWN),
        ("own.registry:5000/vllm-openai:v0.32.0", "0.32.0", True, Weight.UNKNOWN),
        ("vllm-openai-av:latest", "0.33.0", True, Weight.UNKNOWN),
        ("vllm-openai-avx:v0.33.0", "0.33.0", True, Weight.UNKNOWN),
        ("own/image:v0.32.0 vllm serve", "0.33.0", True, Weight.UNKNOWN),
    ],
)
def test_the_vllm_is_that_of_the_image(
    image: str, version: str, patched: bool, weight: Weight, served: list[str]
) -> None:
    answer = ask(f"docker run --gpus all {image}", served)
    vllm = answer.asked.vllm
    assert (vllm.version, vllm.patched, vllm.here) == (version, patched, False)
    assert ("AV-CHECK-VERSION", weight) in told(answer)


@pytest.mark.parametrize(
    "image",
    ["vllm-openai-av:v0.33.0", "own.registry:5000/a/vllm-openai-av:v0.33.0-1@sha256:0af"],
)
def test_an_image_of_this_package_is_known_by_its_name(image: str, served: list[str]) -> None:
    answer = ask(f"docker run --gpus all {image}", served)
    vllm = answer.asked.vllm
    assert (vllm.version, vllm.patched, vllm.here) == ("0.33.0", True, False)
    assert told(answer) == []
    assert vllm.known == "vLLM 0.33.0 of the image, patched"


def test_a_version_that_is_named_is_taken_for_the_images(served: list[str]) -> None:
    answer = ask("docker run --gpus all vllm/vllm-openai:latest", served, vllm="0.33.0")
    assert told(answer) == []
    assert answer.asked.vllm.here is False


@pytest.mark.parametrize(
    ("before", "forced"),
    [
        ("vllm serve", True),
        ("docker run vllm/vllm-openai", False),
        (f"docker run -e {HANDED} vllm/vllm-openai", True),
        (f"docker run -e {HANDED}=1 vllm/vllm-openai", False),
        (f"docker run -e {HANDED} -it own/image vllm serve", True),
    ],
)
def test_a_container_has_the_variables_that_it_is_handed(
    before: str, forced: bool, served: list[str]
) -> None:
    answer = ask(before, served, vllm="0.33.0", **{HANDED: "0"})
    assert ("AV-CHECK-RUNNER" in dict(told(answer))) is forced


def test_a_file_of_variables_is_not_looked_at(served: list[str]) -> None:
    answer = ask("docker run --env-file own.env vllm/vllm-openai", served)
    assert answer.asked.flags.not_looked_at == ("--env-file",)


@pytest.mark.parametrize(
    ("before", "vllm"),
    [("docker run --gpus all vllm/vllm-openai:v0.33.0", None), ("vllm serve", "0.32.0")],
)
def test_a_vllm_for_the_cpu_says_nothing_of_another(
    before: str, vllm: str | None, served: list[str]
) -> None:
    answer = ask(before, served, gpu="auto", vllm=vllm)
    assert answer.asked.setup.gpu is None
    assert ("AV-CHECK-GPU", Weight.UNKNOWN) in told(answer)


def test_of_the_vllm_here_the_answer_says_that_it_is_of_the_cpu(served: list[str]) -> None:
    note = "no --gpu: answered for this machine's CPU, for which the vLLM here is built"
    assert ask("vllm serve", served, gpu="auto").notes == (note,)
    assert ask("vllm serve", served, gpu="cpu").notes == ()
