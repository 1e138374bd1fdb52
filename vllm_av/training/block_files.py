"""What the block drafters read before training and write after it.

Rule: ``training.json`` is written last and says that its folder is whole. The weights hold nothing
that the target has: not the embedding, and not the output head, which is the target's rows at the
tokens of ``d2t``.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from vllm_av.demo.checkpoint import smollm2
from vllm_av.training.block import Backbone, Shape
from vllm_av.training.block_batches import likelihoods
from vllm_av.training.data import Corpus
from vllm_av.training.whole import written

VERSION = 1
"""Of the block drafters' scripts; a change of what they make raises it."""

_WEIGHTS, _TRAINING = "model.safetensors", "training.json"


def is_whole(folder: Path) -> bool:
    """Whether ``folder`` holds a drafter to its last file."""
    return (folder / _TRAINING).exists()


def fresh(shape: Shape, corpus: Corpus, seed: int) -> Backbone:
    """A backbone to begin with.

    The context is mostly the stream nearest to the target's end, the layers add little, and the
    final norm is half the target's: a drafter is less sure.
    """
    torch.manual_seed(seed)
    backbone = Backbone(shape, scales(corpus))
    with torch.no_grad():
        with safe_open(smollm2() / _WEIGHTS, "pt") as target:
            backbone.norm.weight.copy_(target.get_tensor("model.norm.weight") / 2)
        backbone.fc.weight.mul_(0.3)
        backbone.fc.weight[:, -shape.hidden :] += 0.8 * torch.eye(shape.hidden)
        for name, weight in backbone.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.mul_(0.5)
    return backbone


def scales(corpus: Corpus) -> Tensor:
    """What brings each channel of the residual streams to one: float32 ``[3 * hidden]``."""
    sample = torch.arange(0, len(corpus.ids), 211)  # some 2,000 tokens of all texts
    squares = corpus.features[sample, :-1].float().pow(2).mean(0)
    return squares.clamp_min(1e-8).rsqrt().flatten()


def likelihoods_of(work: Path, corpus: Corpus) -> Tensor:
    """:func:`likelihoods`, computed once for all block drafters."""
    kept = work / "block-likelihoods.pt"
    if not kept.exists():
        with written(kept) as path:
            torch.save(likelihoods(corpus), path)
    found: Tensor = torch.load(kept, weights_only=True)
    return found


def weights_of(folder: Path) -> dict[str, Tensor]:
    """The tensors of a drafter that is whole."""
    found: dict[str, Tensor] = load_file(folder / _WEIGHTS)
    return found


def finish(
    folder: Path,
    config: dict[str, object],
    weights: dict[str, Tensor],
    corpus: Corpus,
    told: dict[str, Any],
) -> None:
    """Write the drafter's files; ``told`` is what :func:`block_training.train` says of the run."""
    # How much higher each token's number is in the target's vocabulary, as vLLM wants it.
    offsets = corpus.vocabulary - torch.arange(len(corpus.vocabulary))
    with written(folder / _WEIGHTS) as path:
        save_file(weights | {"d2t": offsets}, path, metadata={"format": "pt"})
        path.chmod(0o644)  # safetensors writes for the owner alone
    _write(folder / "config.json", config)
    trained = corpus.sequences(held_out=False)
    tokens = sum(
        corpus.offsets[n + 1] - corpus.offsets[n] - corpus.prompt_lengths[n] for n in trained
    )
    about = {
        "script": f"vllm_av.training, block drafters, version {VERSION}",
        "target": "SmolLM2-135M-Instruct",
        "texts": len(trained),
        "generated_tokens": tokens,
    }
    _write(folder / _TRAINING, about | told)


def _write(path: Path, value: dict[str, Any]) -> None:
    with written(path) as part:
        part.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
