"""Single values out of a config, checked when they are asked for.

Rule: a number that no model can have is refused with the file and the key it stands under; a key
that is not there, or is null, is the default.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_av.config.text import shown
from vllm_av.errors import CheckError, Code

MOST_LAYERS = 10_000
MOST_HEADS = 65_536
MOST_SIZE = 1 << 20  # of a head, or of a hidden state
MOST_TOKENS = 1 << 31


class NotSaidError(Exception):
    """A config does not say its layers, which vLLM takes from elsewhere."""


@dataclass(frozen=True)
class Fields:
    """An object of a config.

    Args:
        values: its keys.
        source: the file, for errors.
        code: of the errors.
        path: of the object within the file, with a dot at its end, such as ``text_config.``.
    """

    values: Mapping[str, Any]
    source: str
    code: Code
    path: str = ""

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def get(self, *names: str) -> Any:
        """The first of these that is there, else None."""
        return next((self.values[name] for name in names if name in self), None)

    def where(self, *names: str) -> str:
        """The first of these that is there, or the first, as it is found in the file."""
        return self.path + next((name for name in names if name in self), names[0])

    def count(self, *names: str, most: int, least: int = 1, default: int | None = None) -> int:
        """A whole number under the first of these names that is there.

        Raises:
            CheckError: it is none, is out of its range, or there is neither it nor a default.
        """
        value = self.get(*names)
        if value is None and default is not None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is int and least <= value <= most:
            return value
        found = "not there" if value is None else shown(value)
        raise self.wrong(self.where(*names), found, f"a whole number from {least} to {most:,}")

    def optional(self, *names: str, most: int, least: int = 1) -> int | None:
        """The same; None where none of the names is there."""
        return None if self.get(*names) is None else self.count(*names, most=most, least=least)

    def flag(self, name: str, default: bool = False) -> bool:
        """Whether a switch is on, by Python's own sense of it, as model code asks."""
        value = self.get(name)
        return default if value is None else bool(value)

    def text(self, name: str) -> str | None:
        """A string.

        Raises:
            CheckError: it is something else.
        """
        value = self.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self.wrong(self.where(name), shown(value), "a string")

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings, empty where it is not there.

        Raises:
            CheckError: it is something else.
        """
        value = self.get(name)
        if value is None:
            return ()
        if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
            return tuple(value)
        raise self.wrong(self.where(name), shown(value), "a list of strings")

    def items(self, name: str, length: int | None = None) -> Sequence[Any] | None:
        """A list, of at least ``length`` values; None where it is not there.

        Raises:
            CheckError: it is no list, or too short.
        """
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise self.wrong(self.where(name), shown(value), "a list")
        if length is not None and len(value) < length:
            raise self.wrong(
                self.where(name),
                f"a list of {len(value)}",
                f"one value for each of {length} layers",
            )
        return value

    def section(self, name: str) -> "Fields | None":
        """The object under a key; None where it is not there.

        Raises:
            CheckError: it is no object.
        """
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(self.where(name), shown(value), "an object")
        return Fields(value, self.source, self.code, f"{self.path}{name}.")

    def with_defaults(self, defaults: Mapping[str, Any]) -> "Fields":
        """The same with ``defaults`` under the keys that are missing altogether."""
        return Fields({**defaults, **self.values}, self.source, self.code, self.path)

    def number(self, value: object, most: int, *, least: int = 1) -> int:
        """A whole number that stands within a list.

        Raises:
            CheckError: it is none, or out of its range.
        """
        if type(value) is int and least <= value <= most:
            return value
        raise self.wrong("a list", f"one that holds {shown(value)}", f"{least} to {most:,}")

    def inner(self, value: object, name: str) -> "Fields":
        """An object that stands within the list under a key.

        Raises:
            CheckError: it is none.
        """
        if isinstance(value, Mapping):
            return Fields(value, self.source, self.code, f"{self.path}{name}[].")
        raise self.wrong(self.where(name), f"a list that holds {shown(value)}", "objects")

    def replaced(self, **values: Any) -> "Fields":
        """The same with other values under some keys."""
        return Fields({**self.values, **values}, self.source, self.code, self.path)

    def wrong(self, where: str, found: str, allowed: str) -> CheckError:
        """The line that says what is wrong with a key."""
        return CheckError(
            self.code,
            given=f"{where} in {shown(self.source, 200)} is {found}",
            allowed=f"{allowed} is allowed there",
            fix="correct it"
            if self.code is Code.QUESTION_SPEC
            else "correct the file, or fetch it again",
        )
