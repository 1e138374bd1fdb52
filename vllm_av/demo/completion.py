"""A drafter's checkpoint with the rows of the target's output head that its vocabulary names.

Rule: weights are copied, never computed: what is loaded is what was trained, bit for bit.
"""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_av.demo.contents import (
    BEFORE,
    CONFIG,
    HEAD,
    WEIGHTS,
    Contents,
    all_finite,
    damaged,
    read,
    unreadable,
)
from vllm_av.demo.kept import kept

if TYPE_CHECKING:
    from torch import Tensor

# Raise it when the checkpoint written from the same sources changes.
_VERSION = 1
_TARGETS_HEAD = "model.embed_tokens.weight"  # which is its output head as well
_ANOTHER_TARGET = "take a whole target that fits; run again, and SmolLM2 is checked and made anew"


def completed(drafter: Path, target: Path, *, without: str | None = None) -> Path:
    """``drafter`` itself where vLLM can load it as it is, else a completed copy in the cache.

    Args:
        drafter: folder with ``config.json`` and ``model.safetensors``. Its ``d2t``, int64
            ``[draft vocabulary]``, says how much higher a token's number is in the target's.
        target: folder of a target whose embedding is its output head, bfloat16
            ``[vocabulary, hidden]``. Its name stands for its content, as in :mod:`kept`. Not read
            for a drafter that has its output head, as one that lies in its target.
        without: weights whose names begin so are left out, and ``enable_confidence_head`` is
            switched off with them.

    Raises:
        DemoError: ``AV-DEMO-CHECKPOINT`` naming the file of the drafter or of the target that is
            missing or damaged, and what is wrong with it.
        SetupError: ``AV-CACHE-DIR`` if the cache cannot be written.
    """
    carried = read(drafter)
    if not carried.lacks_head and without is None:
        return drafter
    digest = hashlib.sha256(f"{target.name} {without}".encode())
    for name in (CONFIG, WEIGHTS):
        digest.update((drafter / name).read_bytes())
    return kept(
        f"{drafter.name}-{digest.hexdigest()[:16]}-v{_VERSION}",
        lambda folder: _write(carried, target, folder, without),
    )


def _write(carried: Contents, target: Path, folder: Path, without: str | None) -> None:
    from safetensors.torch import save_file

    config, weights = dict(carried.config), dict(carried.weights)
    tokens = carried.tokens
    if tokens is not None and carried.lacks_head:
        weights[HEAD] = _rows(target / WEIGHTS, tokens, config["vocab_size"])
        if BEFORE in weights and len(weights[BEFORE]) == len(tokens):
            before = weights[BEFORE]
            weights[BEFORE] = before.new_zeros(config["vocab_size"], before.shape[1])
            weights[BEFORE][tokens] = before
    if without is not None:
        weights = {name: each for name, each in weights.items() if not name.startswith(without)}
        config["enable_confidence_head"] = False
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _rows(file: Path, tokens: "Tensor", vocabulary: int) -> "Tensor":
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "pt") as weights:
            head: Tensor = weights.get_tensor(_TARGETS_HEAD)
    except (OSError, SafetensorError) as error:
        raise unreadable(file, error, fix=_ANOTHER_TARGET) from error
    if head.dim() != 2 or len(head) != vocabulary:
        what = f"the target's {_TARGETS_HEAD} is {list(head.shape)}, and the drafter's vocabulary"
        raise damaged(file, f"{what} has {vocabulary} tokens", fix=_ANOTHER_TARGET)
    rows = head[tokens].contiguous()
    if not all_finite(rows):
        what = f"{_TARGETS_HEAD} holds numbers that are not finite"
        raise damaged(file, what, fix=_ANOTHER_TARGET)
    return rows
