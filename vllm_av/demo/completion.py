"""A drafter's checkpoint with the rows of the target's output head that its vocabulary names.

Rule: weights are copied, never computed: what is loaded is what was trained, bit for bit.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from vllm_av.demo.kept import kept
from vllm_av.errors import Code, DemoError, told

# Raise it when the checkpoint written from the same sources changes.
_VERSION = 1
_WEIGHTS, _CONFIG = "model.safetensors", "config.json"
_HEAD = "lm_head.weight"
_TARGETS_HEAD = "model.embed_tokens.weight"  # which is its output head as well
_MAPPING = "d2t"
# DSpark reads the token before a draft by its number in the target's vocabulary, and knows the
# reduced one's alone: the others' rows are zeros, which a drafter is carried without.
_BEFORE = "markov_head.markov_w1.weight"


def completed(drafter: Path, target: Path, *, without: str | None = None) -> Path:
    """``drafter`` itself where vLLM can load it as it is, else a completed copy in the cache.

    Args:
        drafter: folder with ``config.json`` and ``model.safetensors``. Its ``d2t``, int64
            ``[draft vocabulary]``, says how much higher a token's number is in the target's.
        target: folder of a target whose embedding is its output head, bfloat16
            ``[vocabulary, hidden]``. Its name stands for its content, as in :mod:`kept`.
        without: weights whose names begin so are left out, and ``enable_confidence_head`` is
            switched off with them.

    Raises:
        DemoError: ``AV-DEMO-CHECKPOINT`` if the drafter's files are missing or damaged.
        SetupError: ``AV-CACHE-DIR`` if the cache cannot be written.
    """
    names = _names(drafter)
    reduced = _MAPPING in names and _HEAD not in names
    if not reduced and without is None:
        return drafter
    digest = hashlib.sha256(f"{target.name} {without}".encode())
    for name in (_CONFIG, _WEIGHTS):
        digest.update((drafter / name).read_bytes())
    return kept(
        f"{drafter.name}-{digest.hexdigest()[:16]}-v{_VERSION}",
        lambda folder: _write(drafter, target, folder, reduced, without),
    )


def _names(drafter: Path) -> set[str]:
    from safetensors import SafetensorError, safe_open

    try:
        json.loads((drafter / _CONFIG).read_text(encoding="utf-8"))
        with safe_open(drafter / _WEIGHTS, "pt") as carried:
            return set(carried.keys())
    except (OSError, ValueError, SafetensorError) as error:
        raise DemoError(
            Code.DEMO_CHECKPOINT,
            given=f"no drafter can be read from {drafter} ({type(error).__name__}: {told(error)})",
            allowed=f"a folder with a whole {_CONFIG} and {_WEIGHTS}",
            fix="take another drafter, or install vllm_av again",
        ) from error


def _write(drafter: Path, target: Path, folder: Path, reduced: bool, without: str | None) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    weights = load_file(drafter / _WEIGHTS)
    config: dict[str, Any] = json.loads((drafter / _CONFIG).read_text(encoding="utf-8"))
    if reduced:
        tokens = torch.arange(len(weights[_MAPPING])) + weights[_MAPPING]
        weights[_HEAD] = _rows(target, tokens)
        if _BEFORE in weights and len(weights[_BEFORE]) == len(tokens):
            carried = weights[_BEFORE]
            weights[_BEFORE] = carried.new_zeros(config["vocab_size"], carried.shape[1])
            weights[_BEFORE][tokens] = carried
    if without is not None:
        weights = {name: each for name, each in weights.items() if not name.startswith(without)}
        config["enable_confidence_head"] = False
    save_file(weights, folder / _WEIGHTS, metadata={"format": "pt"})
    (folder / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _rows(target: Path, tokens: Any) -> Any:
    from safetensors import safe_open

    with safe_open(target / _WEIGHTS, "pt") as weights:
        return weights.get_tensor(_TARGETS_HEAD)[tokens].contiguous()
