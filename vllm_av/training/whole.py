"""Files that are whole under their final name, and whose they are.

Rule: what is written goes beside the final path and is renamed when it is complete. What goes on
from a file, or reads it instead of making it, first compares the digest of what it was made from.
"""

import hashlib
import io
import json
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from vllm_av.errors import Code, TrainingError
from vllm_av.training.reading import json_of


@contextmanager
def written(final: Path) -> Iterator[Path]:
    """A path to write to, which becomes ``final`` where the block ends without an error.

    Raises:
        TrainingError: ``AV-TRAINING-WRITE``; then, as after any error, ``final`` is what it was.
    """
    with all_written(final) as (part,):
        yield part


@contextmanager
def all_written(*finals: Path) -> Iterator[list[Path]]:
    """As :func:`written`, of several files: none is renamed before all are written.

    They are renamed one after the other, in their order: an error or a kill in between leaves the
    first of them new and the others as they were.
    """
    parts = [part_of(final) for final in finals]
    try:
        yield parts
        for final in finals:
            if final.is_dir():
                raise IsADirectoryError(None, "it is a folder", str(final))
        for part, final in zip(parts, finals, strict=True):
            part.replace(final)
    except OSError as error:
        where = error.filename2 or error.filename or finals[0].parent
        raise unwritable(finals[0] if len(finals) == 1 else where, error) from error
    finally:
        for part in parts:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def part_of(final: Path) -> Path:
    """Where what becomes ``final`` is written."""
    return final.with_name(final.name + ".part")


def unwritable(path: object, error: OSError) -> TrainingError:
    """``AV-TRAINING-WRITE``: writing ``path`` ended in ``error``."""
    return TrainingError(
        Code.TRAINING_WRITE,
        given=f"{path}: {error.strerror or error}",
        allowed="a folder that can be written, on a disk with room",
        fix="mend that, or give another folder with --work, and run it again",
    )


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
    from safetensors.torch import save

    content = save(tensors, metadata={"format": "pt"})
    with written(final) as path:
        path.write_bytes(content)


def write_state(final: Path, state: Any) -> None:
    """What a training has come to, as a whole file of torch's."""
    import torch

    # By way of memory: torch's own writer hides that a disk is full.
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with written(final) as path:
        path.write_bytes(buffer.getbuffer())


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
    require(json_of(path, dict).get("digest"), wanted, path.parent)
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
    there = [each for each in (path, part_of(path)) if each.exists()]
    if there and note.exists():
        require(_digest_in(note), wanted, there[0])
    elif there and not adopted():
        require(None, wanted, there[0])
    else:
        with written(note) as part:
            part.write_text(wanted + "\n", encoding="utf-8")


def _digest_in(note: Path) -> str | None:
    try:
        return note.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None  # which fits nothing


def machine() -> dict[str, str]:
    """What a file's bits depend on beside the pinned packages: Python and the processor."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {"python": platform.python_version(), "processor": next(named, platform.machine())}


def _name(value: Any) -> str:
    name: str = value.__qualname__
    return name
