"""A model's folder, and the JSON in it: what is there is read, nothing is fetched or imported.

Rule: whatever lies at a path - nothing, a pipe, a device, a file of many megabytes, text that is no
JSON - gives the object that was asked for or one line that says what is wrong.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_av.config.text import shown
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.reading import read_bytes

CONFIG = "config.json"
_MAX_CONFIG = 8 << 20  # bytes; the largest published ones list ignored layers in 1 or 2 MiB
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_LONGEST = 96  # characters of a hub name
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]*", re.ASCII)


def cached_models() -> Path:
    """The hub's cache, as the hub's own client finds it."""

    def folder(value: str) -> Path:
        # A user that is not there stays in the name, as in the hub's own client.
        return Path(os.path.expanduser(os.path.expandvars(value)))

    environment = os.environ
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if value := environment.get(variable):
            return folder(value)
    home = environment.get("HF_HOME")
    if not home:
        home = os.path.join(environment.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return folder(home) / "hub"


def model_folder(name: str, code: Code, revision: str | None = None) -> Path:
    """The folder that ``name`` stands for: a path, or a hub name that the cache has.

    Raises:
        CheckError: ``code``, where there is none.
    """
    try:
        folder = Path(name)
        if folder.is_dir() and name:
            return folder
        there = folder.exists() and bool(name)
    except (OSError, ValueError):  # too long, or a NUL in it
        there = False
    if there:
        raise CheckError(
            code,
            given=f"{shown(name, 200)} is no folder",
            allowed=f"a folder that holds {CONFIG}, or the hub name of a model in the cache",
            fix="name the model's folder",
        )
    if len(name) <= _LONGEST and _HUB_NAME.fullmatch(name) and ".." not in name:
        return _snapshot(name, code, revision)
    raise CheckError(
        code,
        given=f"there is no folder {shown(name, 200)}",
        allowed=f"a folder that holds {CONFIG}, or the hub name of a model in the cache",
        fix="correct the path",
    )


def _snapshot(name: str, code: Code, revision: str | None) -> Path:
    cache = cached_models()
    stored = cache / f"models--{name.replace('/', '--')}"
    wanted = revision or "main"
    folder = None
    if _REVISION.fullmatch(wanted) and ".." not in wanted:
        commit = wanted
        try:
            data = read_bytes(stored / "refs" / wanted, 4096)
            commit = data.decode("ascii").strip()
        except (OSError, ValueError):
            pass  # a commit has no ref of its own
        if re.fullmatch(r"\w+", commit):
            folder = stored / "snapshots" / commit
    try:
        if folder is not None and folder.is_dir():
            return folder
    except OSError:
        pass
    fetch = f"fetch its small files: hf download {name} --include '*.json'"
    if code is Code.QUESTION_DRAFT:
        # In one file without an index, the header of the weights alone names the tensors.
        fetch = f"fetch it: hf download {name}"
    raise CheckError(
        code,
        given=f"there is no folder {shown(name, 200)}, and the hub's cache does not have "
        f"revision {shown(wanted)} of a model of that name",
        allowed=f"a folder that holds {CONFIG}, or the hub name of a model in the cache",
        fix=f"correct the name, or {fetch}",
    )


def read_config(folder: Path, name: str, code: Code) -> dict[str, Any]:
    """``config.json`` of a model.

    Raises:
        CheckError: ``code``, where it is not there, cannot be read or holds no object.
    """
    file = folder / CONFIG
    try:
        value = _json(read_bytes(file, _MAX_CONFIG))
    except FileNotFoundError:
        other = " (it has a params.json, which this check does not read)"
        raise CheckError(
            code,
            given=f"the model {shown(name, 200)} has no {CONFIG}"
            + (other if (folder / "params.json").is_file() else ""),
            allowed=f"a folder that holds {CONFIG} as transformers writes it",
            fix="name the model's folder, or fetch the file",
        ) from None
    except OSError as error:
        raise unreadable(file, error.strerror or str(error), code) from None
    except ValueError as error:
        raise unreadable(file, str(error), code) from None
    if not isinstance(value, dict):
        raise unreadable(file, f"it is {shown(value)}, and no object", code)
    return value


def read_index(file: Path, most: int) -> Any:
    """The JSON value in a file of at most ``most`` bytes.

    Raises:
        OSError, ValueError: it cannot be read, or is no JSON.
    """
    return _json(read_bytes(file, most))


def unreadable(file: Path, reason: str, code: Code) -> CheckError:
    """The line that says so."""
    return CheckError(
        code,
        given=f"{shown(str(file), 200)} cannot be read: {reason}",
        allowed="one JSON object in a file of UTF-8 text",
        fix="correct the file, or fetch it again",
    )


def _json(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8"))
    except UnicodeDecodeError:
        reason = "it is not UTF-8 text"
    except json.JSONDecodeError as error:
        reason = f"it is no JSON: {error.msg} at line {error.lineno}, column {error.colno}"
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError:  # of a whole number of more than 4,300 digits
        reason = "a number in it has too many digits"
    raise ValueError(reason)


def merged(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """``config`` with ``--hf-overrides`` in place; an object within is merged key by key."""
    result = dict(config)
    for key, value in overrides.items():
        old = result.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            value = merged(old, value)
        result[key] = value
    return result
