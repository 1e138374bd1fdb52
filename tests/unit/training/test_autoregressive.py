"""The rollout that runs all starts at once, against one chain at a time as the engine has it."""

import pytest
import torch
from torch import Tensor

from tests.chains import chain
from vllm_av.training.autoregressive import HIDDEN, OneLayerHead, Window
from vllm_av.training.data import SequenceBatch
from vllm_av.training.eagle import Eagle
from vllm_av.training.eagle3 import Eagle3

VOCABULARY = 40
STEPS = 3


@pytest.fixture(scope="module")
def batch() -> SequenceBatch:
    """Two sequences, of 5 and 8 tokens of prompt, and answers of 10 and 6."""
    draw = torch.Generator().manual_seed(0)
    return SequenceBatch(
        ids=torch.randint(0, VOCABULARY, (2, 15), generator=draw),
        features=torch.randn(2, 15, 4, HIDDEN, generator=draw),
        lengths=torch.tensor([15, 14]),
        prompt_lengths=torch.tensor([5, 8]),
    )


@pytest.fixture(scope="module")
def embedding() -> Tensor:
    return torch.randn(VOCABULARY, HIDDEN, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", [Eagle, Eagle3])
@torch.no_grad()
def test_side_by_side_is_one_by_one(
    kind: type[OneLayerHead], batch: SequenceBatch, embedding: Tensor
) -> None:
    torch.manual_seed(2)
    drafter = kind()
    for parameter in drafter.parameters():
        if parameter.dim() == 1:  # norms begin as ones, which would hide a missing one
            parameter.copy_(torch.rand_like(parameter) + 0.5)
    drafts = drafter(batch, Window.of(batch), embedding, STEPS)
    for row, first, starts in ((0, 4, (4, 7, 9)), (1, 7, (7, 8))):
        for start in starts:
            text = iter(batch.ids[row, start + 2 :].tolist())
            outs = chain(
                drafter,
                batch.ids[row, : start + 2],
                batch.features[row, : start + 1],
                embedding,
                STEPS,
                lambda _, text=text: next(text),
            )
            for step, expected in enumerate(outs):
                found = drafts[step, row, start - first + step]
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_the_parameters_keep_their_order() -> None:
    """In it a gradient's norm is summed: another one trains other last bits."""
    layer = [
        *(f"self_attn.{name}_proj" for name in "qkvo"),
        "post_attention_layernorm",
        *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
    ]
    for kind, before, of_layer, after in (
        (Eagle, ["fc"], [], []),
        (
            Eagle3,
            ["fc_norm.0", "fc_norm.1", "fc_norm.2", "fc"],
            ["input_layernorm", "hidden_norm"],
            ["norm"],
        ),
    ):
        within = [f"layers.0.{name}" for name in of_layer + layer]
        expected = [f"{name}.weight" for name in before + within + after]
        assert [name for name, _ in kind().named_parameters()] == expected


def test_a_head_without_its_own_parts_is_none() -> None:
    with pytest.raises(TypeError, match=r"abstract methods.* joined.* layer.* states"):
        OneLayerHead()  # type: ignore[abstract]


def test_the_window_is_the_answer_as_far_as_its_drafts_are_compared(batch: SequenceBatch) -> None:
    window = Window.of(batch)
    # From the prompt's last token to the last whose draft is compared at a token before the end.
    assert window.positions[0].tolist() == [4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert window.positions[1, window.valid[1]].tolist() == [7, 8, 9, 10, 11]
    assert window.valid.sum().item() == 14
    following = window.take(batch.ids, 1)
    assert following[0].tolist() == batch.ids[0, 5:14].tolist()


def test_a_window_that_begins_in_the_prompt_says_which_of_it_is_asked(batch: SequenceBatch) -> None:
    window = Window.of(batch, before=6)
    # The first prompt is shorter than that.
    assert window.positions[0, window.asked[0]].tolist() == [0, 1, 2, 3]
    assert window.positions[1, window.asked[1]].tolist() == [1, 2, 3, 4, 5, 6]
    answers = Window.of(batch)
    assert not answers.asked.any()
    for row in (0, 1):
        later = window.valid[row] & ~window.asked[row]
        expected = answers.positions[row, answers.valid[row]]
        assert window.positions[row, later].tolist() == expected.tolist()
