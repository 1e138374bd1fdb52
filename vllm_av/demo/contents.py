"""What a drafter's folder holds, read and checked before anything is made of it.

Rule: what is not as a trainer writes it is refused and named; nothing is repaired or guessed.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_av.errors import Code, DemoError, told

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS, CONFIG = "model.safetensors", "config.json"
MAPPING = "d2t"
HEAD = "lm_head.weight"
# DSpark reads the token before a draft by its number in the target's vocabulary, and knows the
# reduced one's alone: the others' rows are zeros, which a drafter is carried without.
BEFORE = "markov_head.markov_w1.weight"


@dataclass(frozen=True)
class Contents:
    """A drafter as it lies in its folder.

    Args:
        config: of ``config.json``.
        weights: by name, each finite.
        tokens: the target's numbers of the drafter's tokens, int64 ``[draft vocabulary]``, strictly
            ascending and below ``config["vocab_size"]``; None where it has the target's vocabulary.
    """

    config: dict[str, Any]
    weights: "dict[str, Tensor]"
    tokens: "Tensor | None"

    @property
    def lacks_head(self) -> bool:
        """Whether the rows of its output head are left to the target's."""
        return self.tokens is not None and HEAD not in self.weights


def read(folder: Path) -> Contents:
    """The drafter in ``folder``.

    Raises:
        DemoError: ``AV-DEMO-CHECKPOINT`` naming the file and what is wrong with it.
    """
    config, weights = _config(folder / CONFIG), _weights(folder / WEIGHTS)
    return Contents(config, weights, _tokens(folder, config, weights))


def damaged(file: Path, what: str, *, fix: str | None = None) -> DemoError:
    """``AV-DEMO-CHECKPOINT``: ``what`` is wrong with ``file``."""
    return DemoError(
        Code.DEMO_CHECKPOINT,
        given=f"{file}: {what}",
        allowed=f"a checkpoint whose {CONFIG} and {WEIGHTS} are whole and fit each other",
        fix=fix or "take another drafter, or install vllm_av again",
    )


def unreadable(file: Path, error: Exception, *, fix: str | None = None) -> DemoError:
    """``AV-DEMO-CHECKPOINT``: reading ``file`` ended in ``error``."""
    return damaged(file, f"cannot be read ({type(error).__name__}: {told(error)})", fix=fix)


def _config(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable(file, error) from error
    if not isinstance(config, dict):
        raise damaged(file, f"holds {told(config, repr):.40}, which is no object")
    return dict(config)


def _weights(file: Path) -> "dict[str, Tensor]":
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        weights: dict[str, Tensor] = load_file(file)
    except (OSError, ValueError, SafetensorError) as error:
        raise unreadable(file, error) from error
    if not weights:
        raise damaged(file, "holds no weight")
    for name, tensor in weights.items():
        if not all_finite(tensor):
            raise damaged(file, f"{name} holds numbers that are not finite")
    return weights


def all_finite(tensor: "Tensor") -> bool:
    """Whether every number of it is finite; asked in float64, as not every type can tell."""
    return not tensor.is_floating_point() or bool(tensor.double().isfinite().all())


def _tokens(folder: Path, config: dict[str, Any], weights: "dict[str, Tensor]") -> "Tensor | None":
    import torch

    whole, reduced = config.get("vocab_size"), config.get("draft_vocab_size")
    file, offsets = folder / WEIGHTS, weights.get(MAPPING)
    if offsets is None:
        if reduced not in (None, whole):
            said = f"has no {MAPPING}, and {CONFIG} says draft_vocab_size {reduced!r:.20}"
            raise damaged(file, f"{said} of vocab_size {whole!r:.20}")
        return None
    if type(whole) is not int or type(reduced) is not int or not 0 < reduced <= whole:
        said = f"draft_vocab_size is {reduced!r:.20} and vocab_size {whole!r:.20}"
        raise damaged(folder / CONFIG, f"{said}, with a {MAPPING} in {WEIGHTS}")
    if offsets.dtype is not torch.int64 or offsets.shape != (reduced,):
        kind = f"{str(offsets.dtype).removeprefix('torch.')} {list(offsets.shape)}"
        raise damaged(file, f"{MAPPING} is {kind} and not int64 [{reduced}], the draft_vocab_size")
    tokens = torch.arange(len(offsets)) + offsets
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= whole:
        raise damaged(file, f"{MAPPING} names the tokens {low} to {high}, and there are {whole}")
    if not bool((tokens.diff() > 0).all()):
        raise damaged(file, f"the tokens of {MAPPING} do not ascend, or one comes twice")
    before = weights.get(BEFORE)
    if before is not None and (before.dim() != 2 or len(before) not in (reduced, whole)):
        said = f"{BEFORE} is {list(before.shape)}"
        raise damaged(file, f"{said} and has neither {reduced} nor {whole} rows")
    return tokens
