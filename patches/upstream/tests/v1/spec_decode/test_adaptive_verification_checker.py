# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project

import pytest

from vllm.config import adaptive_verification_check as check_module
from vllm.config.adaptive_verification_check import (
    Blocker,
    check_adaptive_verification,
    register_adaptive_verification_checker,
)

LORA = Blocker("lora", "No LoRA.")
GRAPHS = Blocker("cudagraphs", "No graphs.")


@pytest.fixture(autouse=True)
def no_checker(monkeypatch):
    monkeypatch.setattr(check_module, "_checker", None)


def test_all_blockers_are_told_at_once():
    with pytest.raises(ValueError, match=r": \(1\) No LoRA\. \(2\) No graphs\. ") as e:
        check_adaptive_verification(None, [LORA, GRAPHS])
    assert "enable_adaptive_verification=false" in str(e.value)


def test_nothing_is_refused_without_blockers():
    check_adaptive_verification(None, [])


@pytest.mark.parametrize("layers", [None, {"layers.0.attn": object()}])
def test_checker_is_given_what_was_found_and_decides(layers):
    config = object()
    left = [Blocker("cudagraphs", "Still no graphs.")]

    def checker(*args):
        assert args == (config, [LORA, GRAPHS], layers)
        return left

    register_adaptive_verification_checker(checker)
    with pytest.raises(ValueError, match=r": \(1\) Still no graphs\. Mend"):
        check_adaptive_verification(config, [LORA, GRAPHS], layers)
    left.clear()
    check_adaptive_verification(config, [LORA, GRAPHS], layers)


def test_checker_is_asked_when_nothing_was_found():
    register_adaptive_verification_checker(lambda *_: [LORA])
    with pytest.raises(ValueError, match="No LoRA"):
        check_adaptive_verification(None, [])


def test_a_second_checker_is_refused():
    def first(_config, blockers, _layers):
        return blockers

    register_adaptive_verification_checker(first)
    register_adaptive_verification_checker(first)  # plugins may load twice
    with pytest.raises(ValueError, match="registered already"):
        register_adaptive_verification_checker(lambda *_: [])
    assert check_module._checker is first
