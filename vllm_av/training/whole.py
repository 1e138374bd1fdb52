"""Files that are whole under their final name.

Rule: what is written goes beside the final path and is renamed when it is complete.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written(final: Path) -> Iterator[Path]:
    """A path to write to, which becomes ``final`` where the block ends without an error."""
    part = final.with_name(final.name + ".part")
    yield part
    part.replace(final)
