"""A scorer's state in a file: NumPy's ``.npz``, readable without this package.

    identity   JSON as bytes: whose state it is, and a digest of the others (uint8 [n])
    NAME       an array of the scorer's

Rule: the file at the path is always a whole one (:mod:`vllm_av.files`), and damage is found.
"""

import hashlib
import io
import json
import os
from collections.abc import Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_av import files
from vllm_av.errors import Code, StateError

VERSION = 1
LARGEST = 64 << 20
"""Bytes of a state file; a state has a few thousand numbers."""
_IDENTITY = "identity"

Arrays = dict[str, NDArray[Any]]


def write(path: Path, identity: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Put the state at ``path``.

    Raises:
        StateError: ``AV-STATE-WRITE``; what was there before is still there.
    """
    whose = {"version": VERSION, "digest": _digest(arrays), **identity}
    described = json.dumps(whose, sort_keys=True).encode()
    buffer = io.BytesIO()
    stored: dict[str, Any] = {_IDENTITY: np.frombuffer(described, np.uint8), **arrays}
    np.savez(buffer, **stored)
    try:
        files.write(path, buffer.getbuffer())
    except OSError as error:
        raise unwritable(path, error) from error


def read(path: Path, identity: Mapping[str, Any]) -> Arrays:
    """The arrays at ``path``.

    Args:
        path: a state file.
        identity: whose state it must be.

    Raises:
        FileNotFoundError: there is none.
        StateError: ``AV-STATE-DAMAGED``, or ``AV-STATE-OTHER`` with what is not the same.
    """
    found, arrays = _unpack(path)
    wanted = {"version": VERSION, **identity}
    wrong = [
        f"{key} is {json.dumps(found.get(key))} and not {json.dumps(wanted.get(key))}"
        for key in sorted(wanted.keys() | found.keys())
        if found.get(key) != wanted.get(key)
    ]
    if wrong:
        raise other(path, "; ".join(wrong))
    return arrays


def put_aside(path: Path) -> None:
    """Keep a file that was refused under the name :func:`aside`.

    Raises:
        StateError: ``AV-STATE-WRITE``.
    """
    try:
        path.replace(aside(path))
    except FileNotFoundError:
        return
    except OSError as error:
        raise unwritable(path, error) from error


def aside(path: Path) -> Path:
    """Where :func:`put_aside` puts it: ``PATH.refused``, or with the first number that is free."""
    names = chain(["refused"], (f"refused-{number}" for number in count(2)))
    places = (path.with_name(f"{path.name}.{name}") for name in names)
    return next(place for place in places if not os.path.lexists(place))


def clear_parts(path: Path) -> None:
    """Remove what was begun beside ``path`` and not ended; nobody may be writing it.

    Raises:
        StateError: ``AV-STATE-WRITE``.
    """
    try:
        files.clear_parts(path)
    except OSError as error:
        raise unwritable(path, error) from error


def other(path: Path, wrong: str) -> StateError:
    """``AV-STATE-OTHER``: a whole file whose state does not fit."""
    return StateError(
        Code.STATE_OTHER,
        given=f"the state in {path} is not of this server: {wrong}",
        allowed="the state of the same target, drafter, number of drafts and estimator",
        fix=f"none needed: the server starts cold, and that file becomes {aside(path).name}",
    )


def unwritable(path: Path, error: Exception) -> StateError:
    """``AV-STATE-WRITE``."""
    return StateError(
        Code.STATE_WRITE,
        given=f"the state cannot be written to {path}: {error}",
        allowed="a file in a folder that exists and may be written to",
        fix="name another state_file, or remove the key",
    )


def _unpack(path: Path) -> tuple[dict[str, Any], Arrays]:
    try:
        content = files.read(path, LARGEST)
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        identity = json.loads(arrays.pop(_IDENTITY).tobytes())
        if not isinstance(identity, dict):
            raise TypeError("it does not say whose it is")
        if identity.pop("digest", None) != _digest(arrays):
            raise ValueError("its arrays are not those that were written")
    except FileNotFoundError:
        raise
    except Exception as error:  # which one, depends on the byte that is wrong
        raise _damaged(path, error) from error
    return identity, arrays


def _digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _damaged(path: Path, error: Exception) -> StateError:
    return StateError(
        Code.STATE_DAMAGED,
        given=f"the state in {path} cannot be read: {type(error).__name__}: {error}",
        allowed="a file that vllm_av has written, whole",
        fix=f"none needed: the server starts cold, and that file becomes {aside(path).name}",
    )
