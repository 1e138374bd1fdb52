"""Questions and answers as JSON, between the process that asks and the one that has the classes.

Rule: what comes back equals what went in, to the type.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

Fact = TypeVar("Fact")


def plain(value: Any) -> Any:
    """A dataclass and whatever it holds, as JSON has it; what JSON has not, as text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def fact(kind: type[Fact], given: Any) -> Fact:
    """The inverse of :func:`plain` for a dataclass."""
    made: Fact = _typed(kind, given)
    return made


def _typed(kind: Any, given: Any) -> Any:
    """``given`` as its annotation says: dataclasses, enums, tuples of them, or None."""
    choices = [each for each in get_args(kind) if each is not NoneType]
    if get_origin(kind) is tuple:
        return tuple(_typed(choices[0], each) for each in given)
    if given is None:
        return None
    if len(choices) == 1 and NoneType in get_args(kind):
        return _typed(choices[0], given)
    if is_dataclass(kind) and isinstance(kind, type):
        hints = _hints(kind)
        return kind(**{name: _typed(hints[name], each) for name, each in given.items()})
    return kind(given) if isinstance(kind, type) and issubclass(kind, Enum) else given


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
