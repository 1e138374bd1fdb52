"""Tells one checkpoint from another without reading all of it.

Two fine-tunings of one model have files of the same names and sizes; their weights differ nearly
everywhere, so that a few blocks of each file tell them apart.

Rule: the same files give the same digest wherever they lie.
"""

from pathlib import Path
from typing import Protocol

WEIGHTS = frozenset({".safetensors", ".bin", ".pt", ".pth", ".gguf"})
BLOCK = 4096
BLOCKS = 16
"""Of each file; read from its beginning to its end at equal distances."""


class Digest(Protocol):
    """Of :mod:`hashlib`."""

    def update(self, data: bytes, /) -> None:
        """Add ``data``."""


def add(place: Path, digest: Digest) -> None:
    """Add the weights at ``place``, a checkpoint's folder or its only file, to ``digest``."""
    files = [place] if place.is_file() else sorted(place.iterdir())
    for path in files:
        if path.suffix in WEIGHTS and path.is_file():
            size = path.stat().st_size
            digest.update(f"{path.name} {size} ".encode())
            with path.open("rb") as file:
                for number in range(BLOCKS):
                    file.seek(max(size - BLOCK, 0) * number // (BLOCKS - 1))
                    digest.update(file.read(BLOCK))
