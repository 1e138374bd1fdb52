"""JSON in and out of one-line errors: read strictly, shown shortened.

Rule: whatever is given, a value is shown in few printable ASCII characters.
"""

import json
import math
import sys
from collections.abc import Iterable
from typing import Any

from vllm_av.errors import Code, ConfigError

_SHOWN = 60  # characters of a value in an error
_MAX_BYTES = 1 << 20


def shown(value: object, limit: int = _SHOWN) -> str:
    """``value`` as JSON where it has a JSON form, cut to ``limit`` characters."""
    text = ""
    try:
        # Lazily: a value of a million numbers is not written in whole to show its first ten.
        for part in json.JSONEncoder(default=_other).iterencode(value):
            text += part
            if len(text) > limit:
                break
    except (TypeError, ValueError, RecursionError):
        # A key that JSON cannot have, a huge whole number, a structure within itself.
        text = f"<{type(value).__name__}, not shown>"
    return _cut(text, limit)


def _other(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # a stranger's __repr__
        return f"<{type(value).__name__}>"


def read_object(text: str, where: str) -> Any:
    """The JSON value in ``text``; NaN, Infinity, a number that no float holds and a key
    that is given twice are refused.

    Raises:
        ConfigError: ``AV-CONFIG-JSON``. ``where`` names the text in it.
    """
    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at line {error.lineno}, column {error.colno}"
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError as error:
        # Of a whole number of more than 4,300 digits Python speaks in its own terms.
        reason = error.args[0] if error.args[1:] else "a number has too many digits"
    raise ConfigError(
        Code.CONFIG_JSON,
        given=f"{where} is not JSON: {reason}",
        allowed='one JSON object, {"key": value, ...}, with its keys in double quotes',
        fix="correct it; `vllm-av config validate FILE` checks a file",
    )


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {shown(key)} is given twice", key)
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number", name)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {shown(text)} is too large", text)
    return number


def named(name: str) -> str:
    """The file ``name`` in a line of text; ``-`` is standard input."""
    return "standard input" if name == "-" else printable(name)


def printable(text: str, limit: int = 200) -> str:
    """``text`` as it is where a line of ASCII text can hold it, else as JSON; cut to ``limit``."""
    fits = len(text) <= limit and text.isascii() and text.isprintable()
    return text if fits else shown(text, limit)


def ascii_line(text: str, limit: int) -> str:
    """``text`` as one line of at most ``limit`` characters, all others than ASCII's escaped."""
    few = text[: limit + 1]
    plain = (c if c.isascii() and c.isprintable() else json.dumps(c)[1:-1] for c in few)
    return _cut("".join(plain), limit)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def read_file(name: str) -> Any:
    """The JSON value in the file ``name``; ``-`` is standard input.

    Raises:
        ConfigError: ``AV-CONFIG-FILE`` where it cannot be read, ``AV-CONFIG-JSON``.
    """
    try:
        if name == "-":
            if sys.stdin is None:  # as `<&-` leaves it
                raise ValueError("it is closed")
            data = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with open(name, "rb") as file:
                data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ValueError("it has more than 1 MiB")
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        reason = "it is not UTF-8 text"
    except OSError as error:
        reason = error.strerror or str(error)
    except ValueError as error:  # too long, or a NUL in the name
        reason = str(error)
    else:
        return read_object(text, named(name))
    raise ConfigError(
        Code.CONFIG_FILE,
        given=f"{named(name) if name == '-' else shown(name, 200)} cannot be read: {reason}",
        allowed="a file of JSON text in UTF-8, or - for standard input",
        fix="correct the name or the file",
    )
