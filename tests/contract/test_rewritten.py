"""Gemma 4, with heads of two sizes, built by vLLM: its layers get the backends that are said."""

from collections import Counter
from pathlib import Path

import pytest

from tests.contract.asked_configs import Asked
from tests.contract.checkpoints import write
from tests.contract.configs import Case, ask
from vllm_av.preflight.check import Ways, check
from vllm_av.preflight.question import Question

BUILT = ("--skip-tokenizer-init", "--max-model-len", "1024")
WIDE = [
    pytest.param(version, gpu, marks=pytest.mark.full)
    for version, gpu in (("0.32.0", "h100"), ("0.33.0", "a100"), ("0.32.0", "a100"))
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("version", "gpu"), [("0.33.0", "h100"), *WIDE])
def test_heads_of_two_sizes_get_the_backend_that_is_said(
    version: str, gpu: str, tmp_path: Path
) -> None:
    checkpoints = write(tmp_path)
    asked = Asked("", BUILT, target="gemma-4-31b", method="eagle")
    argv = asked.argv(checkpoints)
    cache = tmp_path / "cache"
    cache.mkdir()
    (built,) = ask(version, gpu, [Case(argv, build=True)], cache)
    assert built.layers, built.refusal
    theirs: Counter[str] = Counter()
    for backend, _, count in built.layers:
        theirs[backend] += count
    question = Question(argv, gpu=gpu, vllm=version, environment={})
    ours: Counter[str] = Counter()
    for layers in check(question, Ways.TABLE).judgement.layers:
        assert layers.chosen is not None
        ours[layers.chosen.name] += layers.group.count
    assert ours == theirs
    assert ours.total() == 60
