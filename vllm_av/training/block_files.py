"""What the block drafters read before training and write after it.

Rule: ``training.json`` is written last and says that its folder is whole. The weights hold nothing
that the target has: not the embedding, and not the output head, which is the target's rows at the
tokens of ``d2t``.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from vllm_av.demo.checkpoint import smollm2
from vllm_av.training import prompts, reading
from vllm_av.training.block import Backbone, BackboneShape
from vllm_av.training.block_batches import likelihoods
from vllm_av.training.data import Corpus
from vllm_av.training.whole import machine, write_json, write_state, write_tensors

VERSION = 1
"""Of the block drafters' scripts; a change of what they make raises it."""

TARGET_LAYERS = 30
_INHERITED = (
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
)
_WEIGHTS = "model.safetensors"


def fresh(shape: BackboneShape, corpus: Corpus, seed: int) -> Backbone:
    """A backbone to begin with.

    The context is mostly the stream nearest to the target's end, layers write what the target's
    last layers write (values, outputs, the strongest of their neurons), and the final norm is half
    the target's: a drafter is less sure. In one run, 300 steps from there drafted the first
    position as well as 480 from random layers.
    """
    torch.manual_seed(seed)
    backbone = Backbone(shape, scales(corpus))
    with torch.no_grad(), safe_open(smollm2() / _WEIGHTS, "pt") as target:
        backbone.norm.weight.copy_(target.get_tensor("model.norm.weight") / 2)
        backbone.fc.weight.mul_(0.3)
        backbone.fc.weight[:, -shape.hidden :] += 0.8 * torch.eye(shape.hidden)
        for number, layer in enumerate(backbone.layers):
            last = f"model.layers.{TARGET_LAYERS - shape.layers + number}."
            _inherit(layer, {name: target.get_tensor(last + name) for name in _INHERITED})
    return backbone


def _inherit(layer: nn.Module, weights: dict[str, Tensor]) -> None:
    """Begin with a layer of the target's, which has more neurons."""
    own = dict(layer.named_parameters())
    gate, up, down = (weights[f"mlp.{name}_proj.weight"].float() for name in ("gate", "up", "down"))
    strength = gate.norm(dim=1) * up.norm(dim=1) * down.norm(dim=0)
    kept = strength.topk(len(own["mlp.gate_proj.weight"])).indices
    for name in _INHERITED:
        if name == "mlp.down_proj.weight":
            own[name].copy_(weights[name][:, kept])
        else:
            own[name].copy_(weights[name][kept] if name.startswith("mlp.") else weights[name])


def parts(corpus: Corpus) -> tuple[list[int], list[int]]:
    """Numbers of the texts to train on, and of a sixteenth that the confidence head is fitted to.

    On texts that the backbone has seen, its drafts are better than the head will find them. What
    is set apart are answers: to a third of their requests the backbone has seen another one. A fit
    to the other two thirds alone was further from the truth on held-out requests (it said .50 of
    the first position where .52 was true; this one .52).
    """
    apart = [number // 8 % 16 == 15 for number in range(len(corpus.held_out))]
    trained = corpus.sequences(held_out=False)
    return [n for n in trained if not apart[n]], [n for n in trained if apart[n]]


def scales(corpus: Corpus) -> Tensor:
    """What brings each channel of the residual streams to one: float32 ``[3 * hidden]``."""
    sample = torch.arange(0, len(corpus.ids), 211)  # some 2,000 tokens of all texts
    squares = corpus.features[sample, :-1].float().pow(2).mean(0)
    return squares.clamp_min(1e-8).rsqrt().flatten()


def likelihoods_of(work: Path, corpus: Corpus) -> Tensor:
    """:func:`likelihoods`, computed once for all block drafters of one corpus."""
    kept = work / f"block-likelihoods-{corpus.digest[:16]}.pt"
    if not kept.exists():
        write_state(kept, likelihoods(corpus))
    found: Tensor = reading.state(kept, Tensor)
    return found


def weights_of(folder: Path) -> dict[str, Tensor]:
    """The tensors of a drafter that is whole."""
    return reading.tensors(folder / _WEIGHTS)


def finish(
    folder: Path,
    config: dict[str, object],
    weights: dict[str, Tensor],
    corpus: Corpus,
    told: dict[str, Any],
) -> None:
    """Write the drafter's files; ``told`` is what :func:`block_training.train` says of the run."""
    write_tensors(folder / _WEIGHTS, weights | {"d2t": corpus.d2t})
    write_json(folder / "config.json", config)
    trained, _ = parts(corpus)
    tokens = sum(
        corpus.offsets[n + 1] - corpus.offsets[n] - corpus.prompt_lengths[n] for n in trained
    )
    about = {
        "version": VERSION,
        "target": "SmolLM2-135M-Instruct",
        "texts": len(trained),
        "generated_tokens": tokens,
        "left_out": corpus.left_out,
        "made_on": machine(),
        "requests": prompts.digest(),
    }
    write_json(folder / "training.json", about | told)
