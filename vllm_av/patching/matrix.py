"""Which vLLM is there a series for, what was tested of it, and what does that not show?

Written from the series, from ``wheel.toml``, and from ``tested.toml`` beside each:

    where = "on which machine"
    shows_not = ["what the tests do not show"]
    more = "#heading"                                where more is said of that; or ""
    install = "how it is installed, as Markdown"

    [[tested]]
    what = "what was tested"
    command = "what runs it again"

Rule: what no such file says was not tested.
"""

import tomllib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from vllm_av import __version__
from vllm_av.errors import Code, PatchError
from vllm_av.patching.edge import told
from vllm_av.patching.series import TESTED, entries, versions
from vllm_av.patching.wheels import Pin, read_pin

NOT_TESTED = "nothing yet"

_LINES = ("where", "more", "install")


@dataclass(frozen=True)
class Tested:
    """One thing that was tested."""

    what: str
    command: str


@dataclass(frozen=True)
class Row:
    """One version of vLLM."""

    vllm: str
    pin: Pin
    patches: dict[str, tuple[str, ...]]
    """Group -> names."""
    tested: tuple[Tested, ...] = ()
    where: str = ""
    shows_not: tuple[str, ...] = ()
    more: str = ""
    install: str = ""


@dataclass(frozen=True)
class Matrix:
    """All of them, oldest first."""

    vllm_av: str
    rows: tuple[Row, ...]

    def as_dict(self) -> dict[str, Any]:
        """The same, for ``--json``."""
        return asdict(self)

    def table(self) -> str:
        """As a table in Markdown."""
        ours = f"patches of vllm_av {self.vllm_av}"
        head = f"| vLLM | {ours} | tested | not shown by that | installed by |"
        lines = [head, "|---|---|---|---|---|", *map(_line, self.rows)]
        return "".join(f"{line}\n" for line in lines)


@told()
def matrix(root: Path) -> Matrix:
    """The matrix of the series below ``root``.

    Raises:
        PatchError: AV-PATCH-SERIES, AV-PATCH-NO-SERIES.
    """
    return Matrix(__version__, tuple(_row(root, version) for version in versions(root)))


def _row(root: Path, version: str) -> Row:
    groups: dict[str, list[str]] = {}
    for name in entries(root / version):
        groups.setdefault(name.partition("/")[0], []).append(name)
    patches = {group: tuple(names) for group, names in groups.items()}
    pin = read_pin(root, version)
    path = root / version / TESTED
    if not path.is_file():
        return Row(version, pin, patches)
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _bad(path, str(error)) from None
    if set(found) != {*_LINES, "shows_not", "tested"}:
        raise _bad(path, f"it has the keys {', '.join(sorted(found))}")
    if not isinstance(found["tested"], list) or not all(map(_is_test, found["tested"])):
        raise _bad(path, "a test has not what and command, in one line each")
    shows_not = found["shows_not"]
    if not isinstance(shows_not, list) or not all(map(_is_line, shows_not)):
        raise _bad(path, "shows_not is no list of lines")
    if bad := [key for key in _LINES if not _is_line(found[key])]:
        raise _bad(path, f"{bad[0]} is no line of text")
    return Row(
        version,
        pin,
        patches,
        tuple(Tested(**test) for test in found["tested"]),
        shows_not=tuple(shows_not),
        **{key: found[key] for key in _LINES},
    )


def _is_test(test: object) -> bool:
    keys = {field.name for field in fields(Tested)}
    return isinstance(test, dict) and set(test) == keys and all(map(_is_line, test.values()))


def _is_line(value: object) -> bool:
    """One line that leaves a table's cell whole."""
    return isinstance(value, str) and value.isprintable() and "|" not in value


def _bad(path: Path, what: str) -> PatchError:
    return PatchError(
        Code.PATCH_SERIES,
        f"{path}: {what}",
        f"{', '.join(_LINES)}, shows_not, and [[tested]] with what and command",
        "write it as for another version",
    )


def _line(row: Row) -> str:
    tests = "; ".join(f"{test.what} (`{test.command}`)" for test in row.tested)
    groups = ", ".join(f"`{group}`" for group in row.patches)
    shows_not = ", ".join(row.shows_not)
    cells = (
        f"{row.vllm} (`{row.pin.distribution}`)",
        groups,
        f"{tests}; on {row.where}" if tests else NOT_TESTED,
        f"[{shows_not}]({row.more})" if row.more else shows_not,
        row.install,
    )
    return f"| {' | '.join(cells)} |"
