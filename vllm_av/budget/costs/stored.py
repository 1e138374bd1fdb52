"""A policy whose costs lie in a file: read where it is there, else measured and written.

Rule: a file that is there and does not fit ends the start of the engine; it is not measured over,
since another engine may need it. A measured table that cannot be written is told, and the engine
goes on, since it has its costs.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vllm_av import files
from vllm_av.budget.around import Around, Curves, Policy
from vllm_av.budget.costs import table
from vllm_av.budget.costs.identity import require_equal
from vllm_av.errors import CostTableError

Identity = Callable[[list[int]], Mapping[str, Any]]
"""Of the captured sizes: what this engine is."""


def place(given: str) -> Path:
    """The file that a user means; a link to it stays one.

    Raises:
        CostTableError: ``AV-COST-TABLE-FILE``.
    """
    path = Path(given)
    try:
        return path.expanduser().absolute().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise table.unreadable(path, str(error)) from error


def examine(path: Path, here: Mapping[str, Any]) -> table.CostTable | None:
    """The table at ``path``; None where there is none, and one can be written.

    Args:
        path: the file.
        here: what is known of this engine; all else is taken for equal.

    Raises:
        CostTableError: it does not fit, cannot be read, or could not be written.
    """
    try:
        found = table.read(path)
    except FileNotFoundError:
        _require_writable(path)
        return None
    require_equal(path, found.identity, here)
    return found


def _require_writable(path: Path) -> None:
    if not path.parent.is_dir():
        raise table.unwritable(path, "there is no such folder")
    try:
        files.try_to_write(path)  # a name may be too long, or the disk read-only for root too
    except OSError as error:
        raise table.unwritable(path, error.strerror or error) from error


class StoredCosts(Around):
    """A policy with a file.

    Args:
        inner: decides.
        path: the file.
        identity: of this engine, asked when its graphs have been captured.
        failed: told the error that ends the engine, before it is raised.
        say, warn: told one line each.
    """

    def __init__(
        self,
        inner: Policy,
        path: Path,
        identity: Identity,
        *,
        failed: Callable[[CostTableError], object],
        say: Callable[[str], object],
        warn: Callable[[str], object],
    ) -> None:
        super().__init__(inner)
        self._path = path
        self._identity = identity
        self._failed = failed
        self._say = say
        self._warn = warn

    def load_cost_curves(self, capture_sizes: list[int]) -> Curves | None:
        """What the file says.

        Raises:
            CostTableError: it does not fit, cannot be read, or could not be written.
        """
        try:
            found = examine(self._path, self._identity(capture_sizes))
        except CostTableError as error:
            self._failed(error)
            raise
        if found is None:
            return None
        self._say(f"what steps cost comes from {self._path}, and is not measured")
        return found.curves

    def save_cost_curves(self, capture_sizes: list[int], curves: Curves) -> None:
        """Write the file, unless another engine has written it in the meantime."""
        identity = self._identity(capture_sizes)
        try:
            if examine(self._path, identity) is None:
                table.write(self._path, table.CostTable(identity, curves))
                self._say(f"what steps cost was measured, and written to {self._path}")
        except CostTableError as error:
            self._warn(str(error))
