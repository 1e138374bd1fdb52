"""The parallel backbone: what a row may see, and the checkpoint that vLLM reads."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from vllm_av.training.block import (
    MASK_TOKEN,
    Backbone,
    BackboneShape,
    Blocks,
    attend,
    config,
    export,
    restore,
)

SHAPE = BackboneShape(
    layers=2, intermediate=24, target_layers=(0, 3), hidden=16, heads=4, kv_heads=2, head_dim=8
)
LENGTHS = (9, 12)
ANCHORS = torch.tensor([[2, 5, 8], [4, 7, 11]])


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    torch.manual_seed(0)
    backbone = Backbone(SHAPE, torch.rand(2 * SHAPE.hidden) + 0.5)
    with torch.no_grad():
        for parameter in backbone.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return backbone


@pytest.fixture(scope="module")
def streams() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(sum(LENGTHS), 2 * SHAPE.hidden)


@pytest.fixture(scope="module")
def embedding() -> Tensor:
    torch.manual_seed(2)
    return torch.randn(MASK_TOKEN + 8, SHAPE.hidden)


@pytest.fixture
def blocks() -> Blocks:
    starts = torch.tensor([0, LENGTHS[0], sum(LENGTHS)])
    return Blocks(starts, ANCHORS, torch.tensor([[17, 18, 19], [20, 21, 22]]), rows=4)


@torch.no_grad()
def test_a_block_knows_nothing_behind_its_anchor(
    backbone: Backbone, streams: Tensor, embedding: Tensor, blocks: Blocks
) -> None:
    before = backbone(streams, blocks, embedding)
    for text, start in enumerate(blocks.texts[:-1].tolist()):
        for block, anchor in enumerate(ANCHORS[text].tolist()):
            changed = streams.clone()
            changed[start + anchor :] += 1.0  # the anchor's own place and all behind
            if text == 1:
                changed[:start] += 1.0  # another text
            after = backbone(changed, blocks, embedding)
            assert torch.equal(after[text, block], before[text, block])
            changed = streams.clone()
            changed[start + anchor - 1] += 1.0  # the last place that the target has read
            after = backbone(changed, blocks, embedding)
            assert (after[text, block] - before[text, block]).abs().amin(-1).max() > 0


@torch.no_grad()
def test_a_block_is_the_same_among_others_and_alone(
    backbone: Backbone, streams: Tensor, embedding: Tensor, blocks: Blocks
) -> None:
    together = backbone(streams, blocks, embedding)
    for text, start in enumerate(blocks.texts[:-1].tolist()):
        for block, anchor in enumerate(ANCHORS[text].tolist()):
            alone = Blocks(
                torch.tensor([0, anchor]),
                torch.tensor([[anchor]]),
                blocks.tokens[text, block].view(1, 1),
                rows=4,
            )
            states = backbone(streams[start : start + anchor], alone, embedding)
            torch.testing.assert_close(states[0, 0], together[text, block])


@torch.no_grad()
def test_every_row_of_a_block_knows_the_anchor_and_its_own_place(
    backbone: Backbone, streams: Tensor, embedding: Tensor, blocks: Blocks
) -> None:
    before = backbone(streams, blocks, embedding)
    after = backbone(streams, replace(blocks, tokens=blocks.tokens + 1), embedding)
    assert (after != before).any(-1).all()
    masks = before[0, 0, 1:]
    assert torch.pdist(masks).min() > 1e-3


def test_attention_is_the_softmax_over_what_is_seen() -> None:
    torch.manual_seed(3)
    queries, keys, values = torch.randn(2, 3, 4, 8), *torch.randn(2, 2, 3, 2, 8)
    context_keys, context_values = torch.randn(2, 6, 2, 8)
    seen = torch.tensor([[True] * 2 + [False] * 4, [True] * 5 + [False]])
    mixed = attend(queries, context_keys, context_values, keys, values, seen).view(2, 3, 4, 8)
    for block in range(2):
        for head in range(4):
            group = head // 2
            every_key = torch.cat([context_keys[seen[block], group], keys[block, :, group]])
            every_value = torch.cat([context_values[seen[block], group], values[block, :, group]])
            scores = queries[block, :, head] @ every_key.T / math.sqrt(8)
            torch.testing.assert_close(mixed[block, :, head], scores.softmax(-1) @ every_value)


@torch.no_grad()
def test_a_restored_checkpoint_drafts_the_same(
    backbone: Backbone, streams: Tensor, embedding: Tensor, blocks: Blocks
) -> None:
    weights = export(backbone)
    other = Backbone(SHAPE, torch.ones(2 * SHAPE.hidden))
    restore(other, weights)
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}
    torch.testing.assert_close(
        other(streams, blocks, embedding), backbone(streams, blocks, embedding), atol=0.1, rtol=0.1
    )


def test_the_checkpoint_has_the_names_and_shapes_that_vllm_loads(backbone: Backbone) -> None:
    layer = {
        "self_attn.q_proj": [32, 16],
        "self_attn.k_proj": [16, 16],
        "self_attn.v_proj": [16, 16],
        "self_attn.o_proj": [16, 32],
        "self_attn.q_norm": [8],
        "self_attn.k_norm": [8],
        "mlp.gate_proj": [24, 16],
        "mlp.up_proj": [24, 16],
        "mlp.down_proj": [16, 24],
        "input_layernorm": [16],
        "post_attention_layernorm": [16],
    }
    expected = {
        f"layers.{n}.{name}.weight": shape for n in range(2) for name, shape in layer.items()
    }
    expected |= {"fc.weight": [16, 32], "hidden_norm.weight": [16], "norm.weight": [16]}
    assert {name: list(weight.shape) for name, weight in export(backbone).items()} == expected


def test_the_config_names_the_layers_whose_output_is_read() -> None:
    # vLLM adds one: its aux layer ids count what enters a layer.
    written = config(SHAPE, 40, 20)
    assert written["dflash_config"] == {"mask_token_id": MASK_TOKEN, "target_layer_ids": [0, 3]}
    assert (written["vocab_size"], written["draft_vocab_size"]) == (40, 20)
