"""Reads what lies in a work folder.

Rule: a file that is not whole is refused by its name; what is made of it is never guessed.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_av.errors import Code, TrainingError, told

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


def damaged(path: Path, what: str) -> TrainingError:
    """``AV-TRAINING-WORK``: ``what`` is wrong with ``path``."""
    return TrainingError(
        Code.TRAINING_WORK,
        given=f"{path} {what}",
        allowed="a file that is whole, as a stage leaves it",
        fix=f"delete {path} and run the stage that makes it once more",
    )


def json_of(path: Path, kind: type) -> Any:
    """The value in ``path``, a ``kind``.

    Raises:
        TrainingError: ``AV-TRAINING-WORK``, as all that is below.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, error) from error
    if not isinstance(value, kind):
        raise damaged(path, f"holds {told(value, repr):.40}, which is no {kind.__name__}")
    return value


def array(path: Path) -> "np.ndarray":
    """The array in ``path``, as :func:`numpy.save` writes it."""
    import numpy as np

    try:
        with path.open("rb") as stream:
            found = np.load(stream)
    except Exception as error:  # a damaged header is evaluated as Python, and fails in many ways
        raise _unreadable(path, error) from error
    if not isinstance(found, np.ndarray):
        raise damaged(path, "holds several arrays and not one")
    return found


def tensors(path: Path) -> "dict[str, Tensor]":
    """The tensors in ``path``, a file of safetensors."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found: dict[str, Tensor] = load_file(path)
    except (OSError, ValueError, SafetensorError) as error:
        raise _unreadable(path, error) from error
    return found


def state(path: Path, kind: type) -> Any:
    """What :func:`torch.save` wrote into ``path``, a ``kind``."""
    import torch

    try:
        found = torch.load(path, weights_only=True)
    # A cut or foreign file ends torch's reader and its unpickler in about any exception.
    except Exception as error:
        raise _unreadable(path, error) from error
    if not isinstance(found, kind):
        raise damaged(path, f"holds a {type(found).__name__} and no {kind.__name__}")
    return found


def _unreadable(path: Path, error: Exception) -> TrainingError:
    said = told(error).strip().partition("\n")[0]
    return damaged(path, f"cannot be read ({type(error).__name__}: {said:.80})")
