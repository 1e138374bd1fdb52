"""The prompts are the same ones everywhere, and an equal mix at any number of them."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from vllm_av.demo.prompts import choose
from vllm_av.errors import Code, DemoError


@pytest.mark.parametrize("count", [3, 24, 60])
def test_every_prefix_is_an_equal_mix(count: int) -> None:
    chosen = choose(count)
    assert Counter(prompt.workload for prompt in chosen) == dict.fromkeys(
        ("humaneval", "docs", "instructions"), count // 3
    )
    assert len({prompt.text for prompt in chosen}) == count
    assert choose(count - 1) == chosen[:-1]


def test_the_choice_does_not_depend_on_the_process() -> None:
    script = "from vllm_av.demo.prompts import choose; print([p.name for p in choose(30)])"
    answers = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1


def test_humaneval_is_asked_as_a_request() -> None:
    first = choose(1)[0]
    assert first.workload == "humaneval"
    assert first.messages == [{"role": "user", "content": first.text}]
    assert first.text.startswith("Complete this Python function.\n```python\n")
    assert "def " in first.text


def test_more_than_there_are_is_refused() -> None:
    with pytest.raises(DemoError, match="10000 prompts") as caught:
        choose(10_000)
    assert caught.value.code is Code.DEMO_PROMPTS
