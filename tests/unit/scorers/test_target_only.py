"""The words for what only the target applies."""

import pytest

from vllm_av.scorers.target_only import WORDS, told


def test_each_bit_has_its_word() -> None:
    assert [told(1 << i) for i in range(len(WORDS))] == list(WORDS)
    assert told(0) is None
    assert told(0b1_0001_0001) == "top_k+penalties+grammar"


@pytest.mark.parametrize("bits", [-1, 1 << len(WORDS)])
def test_an_unknown_bit_is_refused(bits: int) -> None:
    with pytest.raises(ValueError, match="no word stands for"):
        told(bits)
