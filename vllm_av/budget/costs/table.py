"""A cost table: JSON that people can read (``docs/cost-table.md``).

    {"format": "vllm_av cost table", "version": 1,
     "identity": {field: value},
     "draft_ms_by_requests": [[requests, ms], ...],
     "verify_ms_by_tokens": [[tokens, ms], ...]}

Rule: what is read is what vLLM can build its tables from; everything else is refused, and nothing
of it is kept. Sizes ascend.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from vllm_av import files
from vllm_av.budget.around import Curve, Curves
from vllm_av.config.text import printable, read_object, shown
from vllm_av.errors import Code, ConfigError, CostTableError

FORMAT = "vllm_av cost table"
VERSION = 1
LARGEST = 1 << 20
"""Bytes of a file; a table has a few hundred numbers."""
MOST_POINTS = 10_000
LARGEST_SIZE = 1 << 24
"""Tokens or requests of a step."""
CHEAPEST, DEAREST = 1e-6, 1e7
"""Of a step, in ms: vLLM takes nothing to cost less, and no step takes three hours."""
_DRAFT, _VERIFY = "draft_ms_by_requests", "verify_ms_by_tokens"
_KEYS = ("format", "version", "identity", _DRAFT, _VERIFY)
_ABANDONED = 600.0  # seconds after which nobody is still writing a part


@dataclass(frozen=True)
class CostTable:
    """Costs and whose they are."""

    identity: Mapping[str, Any]
    curves: Curves


def read(path: Path) -> CostTable:
    """The table at ``path``.

    Raises:
        FileNotFoundError: there is none.
        CostTableError: ``AV-COST-TABLE-FILE``.
    """
    try:
        content = files.read(path, LARGEST)
        found = read_object(content.decode(), "it")
        return _parsed(found)
    except FileNotFoundError:
        raise
    except UnicodeDecodeError:
        raise unreadable(path, "it is not UTF-8 text") from None
    except ConfigError as error:
        raise unreadable(path, error.given) from None
    except OSError as error:
        raise unreadable(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise unreadable(path, str(error)) from error


def write(path: Path, table: CostTable) -> None:
    """Put ``table`` at ``path``.

    Raises:
        CostTableError: ``AV-COST-TABLE-WRITE``: it is no table that could be read again, or the
            disk refuses; what was there before is still there.
    """
    draft, verify = (_curve(curve) for curve in table.curves)
    identity = ",\n".join(
        f"    {json.dumps(name)}: {json.dumps(value, allow_nan=False)}"
        for name, value in table.identity.items()
    )
    text = (
        f'{{\n  "format": {json.dumps(FORMAT)},\n  "version": {VERSION},\n'
        f'  "identity": {{\n{identity}\n  }},\n'
        f'  "{_DRAFT}": {draft},\n  "{_VERIFY}": {verify}\n}}\n'
    )
    try:
        _parsed(json.loads(text))
        files.clear_parts(path, _ABANDONED)
        files.write(path, text.encode())
    except (OSError, ValueError) as error:
        raise unwritable(path, error) from error


def _curve(curve: Curve) -> str:
    return json.dumps([list(point) for point in curve])


def _parsed(found: Any) -> CostTable:
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f'it is not {{"format": "{FORMAT}", ...}}')
    version = found.get("version")
    if type(version) is not int or version != VERSION:
        raise ValueError(f"its version is {shown(version)}, and {VERSION} is read")
    if found.keys() != set(_KEYS):
        odd = sorted(found.keys() ^ set(_KEYS))[0]
        raise ValueError(f"it {'has no' if odd in _KEYS else 'has the unknown'} key {shown(odd)}")
    identity = found["identity"]
    if not isinstance(identity, dict):
        raise ValueError(f"its identity is {shown(identity)}, and not an object")
    return CostTable(identity, (_points(found, _DRAFT), _points(found, _VERIFY)))


def _points(found: dict[str, Any], name: str) -> Curve:
    """A curve.

    Raises:
        ValueError: it is none.
    """
    curve = found[name]
    if not isinstance(curve, list) or not 0 < len(curve) <= MOST_POINTS:
        raise ValueError(f"its {name} is not a list of 1 to {MOST_POINTS} pairs")
    for point in curve:
        if not isinstance(point, list) or len(point) != 2:
            raise ValueError(f"its {name} has {shown(point)}, and not [size, ms]")
        size, cost = point
        if type(size) is not int or not 1 <= size <= LARGEST_SIZE:
            raise ValueError(f"its {name} has the size {shown(size)}, and not 1 to {LARGEST_SIZE}")
        if type(cost) not in (int, float) or not CHEAPEST <= cost <= DEAREST:
            raise ValueError(
                f"its {name} has the cost {shown(cost)}, and not {CHEAPEST:g} to {DEAREST:g} ms"
            )
    for (size, _), (larger, _) in pairwise(curve):
        if size >= larger:
            raise ValueError(f"the sizes of its {name} do not ascend: {size}, {larger}")
    return [(size, float(cost)) for size, cost in curve]


def unreadable(path: Path, why: str) -> CostTableError:
    """``AV-COST-TABLE-FILE``."""
    return CostTableError(
        Code.COST_TABLE_FILE,
        given=f"the cost table {printable(str(path), 300)} cannot be read: {why}",
        allowed="a cost table that vllm_av has written, whole, or no file yet",
        fix="name another cost_table_path, or remove that file to measure anew",
    )


def unwritable(path: Path, why: object) -> CostTableError:
    """``AV-COST-TABLE-WRITE``."""
    return CostTableError(
        Code.COST_TABLE_WRITE,
        given=f"the cost table {printable(str(path), 300)} cannot be written: {why}",
        allowed="a file in a folder that exists and may be written to",
        fix="name another cost_table_path, or remove the key",
    )
