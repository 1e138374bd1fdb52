"""The Python library's own files, and the ninth of them that prompts are taken from.

Rule: one list for all that reads the library. What differs from machine to machine (build settings,
other people's packages) is not in it.
"""

import sysconfig
import zlib
from pathlib import Path

_FOREIGN = {"dist-packages", "lib-dynload", "site-packages"}
_BUILT = ("config-", "_sysconfigdata")


def library() -> list[tuple[str, Path]]:
    """``(name, path)`` of the standard library's files, held out or not, by name."""
    root = Path(sysconfig.get_path("stdlib"))
    names = ((path.relative_to(root), path) for path in root.rglob("*.py"))
    return sorted(
        (name.as_posix(), path)
        for name, path in names
        if not _FOREIGN & set(name.parts) and not name.parts[0].startswith(_BUILT)
    )


def is_held_out(name: str) -> bool:
    """Whether the library's file ``name`` is one of the ninth that prompts are taken from."""
    return zlib.crc32(name.encode()) % 9 == 0
