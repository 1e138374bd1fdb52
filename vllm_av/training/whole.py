"""Files that are whole under their final name, and whose they are.

Rule: what is written goes beside the final path and is renamed when it is complete. What goes on
from a file, or reads it instead of making it, first compares the digest of what it was made from.
"""

import hashlib
import json
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from vllm_av.errors import Code, TrainingError


@contextmanager
def written(final: Path) -> Iterator[Path]:
    """A path to write to, which becomes ``final`` where the block ends without an error."""
    part = final.with_name(final.name + ".part")
    yield part
    part.replace(final)


def write_json(final: Path, value: object) -> None:
    """``value`` as a whole file.

    Raises:
        ValueError: if a number in it is infinite or nan, which JSON cannot say.
    """
    text = json.dumps(value, indent=2, allow_nan=False)
    with written(final) as path:
        path.write_text(text + "\n", encoding="utf-8")


def write_tensors(final: Path, tensors: dict[str, Any]) -> None:
    """``tensors`` as a whole file of safetensors, which everybody may read."""
    from safetensors.torch import save_file

    with written(final) as path:
        save_file(tensors, path, metadata={"format": "pt"})
        path.chmod(0o644)  # safetensors writes for the owner alone


def digest(*parts: object) -> str:
    """SHA-256 of numbers, strings, lists, dictionaries and dataclasses; of a function, its name."""
    plain = [asdict(part) if is_dataclass(part) and not isinstance(part, type) else part
             for part in parts]  # fmt: skip
    return hashlib.sha256(json.dumps(plain, default=_name).encode()).hexdigest()


def of_file(*paths: Path) -> str:
    """SHA-256 of the files' bytes, one after the other."""
    found = hashlib.sha256()
    for path in paths:
        found.update(path.read_bytes())
    return found.hexdigest()


def require(found: object, wanted: str, path: Path) -> None:
    """Refuse ``path`` where the digest ``found`` of what made it is not ``wanted``.

    Raises:
        TrainingError: ``AV-TRAINING-WORK``.
    """
    if found != wanted:
        raise TrainingError(
            Code.TRAINING_WORK,
            given=f"{path} was made by another plan, version of the script or corpus",
            allowed="what is there must be of the same",
            fix=f"delete {path}, or give another --work",
        )


def is_made(path: Path, wanted: str) -> bool:
    """Whether the JSON file ``path``, the last of its folder, is there.

    Raises:
        TrainingError: ``AV-TRAINING-WORK`` if it is, and its ``digest`` is not ``wanted``.
    """
    if not path.exists():
        return False
    require(json.loads(path.read_text(encoding="utf-8")).get("digest"), wanted, path.parent)
    return True


def claim(path: Path, wanted: str, adopted: Callable[[], bool] = lambda: False) -> None:
    """Note beside ``path``, before it is made, what it is made from; compare where it is there.

    Args:
        path: whole, in part, or not there.
        wanted: the digest of what it is made from.
        adopted: whether a file without a note may be taken for one of ``wanted``.

    Raises:
        TrainingError: ``AV-TRAINING-WORK`` if it was made from something else.
    """
    note = path.with_name(path.name + ".sha256")
    there = [each for each in (path, path.with_name(path.name + ".part")) if each.exists()]
    if there and note.exists():
        require(note.read_text(encoding="utf-8").strip(), wanted, there[0])
    elif there and not adopted():
        require(None, wanted, there[0])
    else:
        with written(note) as part:
            part.write_text(wanted + "\n", encoding="utf-8")


def machine() -> dict[str, str]:
    """What a file's bits depend on beside the pinned packages: Python and the processor."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {"python": platform.python_version(), "processor": next(named, platform.machine())}


def _name(value: Any) -> str:
    name: str = value.__qualname__
    return name
