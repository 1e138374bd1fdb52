"""What a command line of ``vllm serve`` says about adaptive verification.

``known`` lists vLLM's flags, ``words`` finds them in a command line, ``file`` in a YAML file (read
by ``documents``),
``values`` reads those that matter, and this module puts them together. ``command`` takes a command
line as a running process shows it, ``pasted`` one as it is pasted.

Rule: a flag that is not looked at is named, a flag that does not exist is a mistake.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_av.config.text import printable
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.flags.command import Container, Served, serve_arguments
from vllm_av.preflight.flags.file import file_words
from vllm_av.preflight.flags.keys import check_keys, without_nulls
from vllm_av.preflight.flags.pasted import asks_for_json, pasted
from vllm_av.preflight.flags.values import LOOKED_AT, OBJECTS, read
from vllm_av.preflight.flags.words import Given, givens

__all__ = [
    "Container",
    "Flags",
    "Given",
    "Served",
    "asks_for_json",
    "parse",
    "pasted",
    "serve_arguments",
]

_SPEC = "speculative-config"
_SPEC_PARTS = {
    "spec-method": "method",
    "spec-model": "model",
    "spec-tokens": "num_speculative_tokens",
}
_FILE = "config"
# In the speculative config a null is its owner's to judge, in the model's config it replaces.
_PLAIN_OBJECTS = {
    name.replace("-", "_") for name in OBJECTS - {_SPEC, "hf-overrides", "additional-config"}
}


@dataclass(frozen=True)
class Flags:
    """A command line.

    Args:
        given: all its flags, those of a YAML file first.
        values: of the flags that are looked at, by their name with underscores.
        where: the same names, and those of single keys with points -> as the user wrote them.
        not_looked_at: the other flags, as the user wrote them.
        dropped: those that a later one of the same name makes void; only of a lenient reading.
    """

    given: tuple[Given, ...]
    values: Mapping[str, Any]
    where: Mapping[str, str]
    not_looked_at: tuple[str, ...]
    dropped: tuple[str, ...] = ()

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a flag."""
        return self.values.get(name, default)

    def place(self, name: str, key: str = "") -> str | None:
        """As the user wrote a flag, or one of its keys; None where he did not."""
        place = self.where.get(f"{name}.{key}", self.where.get(name))
        return f"{key} in {place}" if key and place and "." not in place else place


def parse(args: Sequence[str], *, strict: bool = True) -> Flags:
    """Read the flags that follow ``vllm serve``.

    Args:
        strict: whether a flag that is given twice is a mistake; else the last one counts, as it
            does in a server that runs.

    Raises:
        CheckError: ``AV-QUESTION-FLAG``: a flag is misspelt, given twice, or of a wrong value.
    """
    said = list(givens(args))
    named = [each for each in said if each.name == _FILE]
    filed: list[Given] = []
    if named:
        _refuse_twice(named)
        name = str(named[0].value)
        filed = list(givens(file_words(name, strict=strict), file=name))
    values: dict[str, Any] = {}
    where: dict[str, str] = {}
    dropped: list[str] = []
    for layer in (filed, said):
        mine = [each for each in layer if each.name in LOOKED_AT]
        if strict:
            _refuse_twice(mine)
        else:
            kept = _last(mine)
            dropped += [each.written for each in mine if not any(each is one for one in kept)]
            mine = kept
        found: dict[str, Any] = {}
        for each in mine:
            key = each.name.replace("-", "_")
            value = read(each)
            found[key] = _merged(found.get(key), value) if each.name in OBJECTS else value
            where[".".join((key, *each.keys))] = where[key] = each.place
        # As a whole: what the command line says replaces the object of a file.
        values |= found
    _fold_speculative(values, where, (*filed, *said))
    for name in _PLAIN_OBJECTS & set(values):
        values[name] = without_nulls(values[name])
    check_keys(values, where)
    return Flags(
        (*filed, *said),
        values,
        where,
        tuple(dict.fromkeys(_ignored((*filed, *said)))),
        tuple(dropped),
    )


def _ignored(given: Iterable[Given]) -> Iterable[str]:
    return (each.written for each in given if each.name not in LOOKED_AT and each.name != _FILE)


def _refuse_twice(given: Sequence[Given]) -> None:
    """vLLM would take the last one, and drop the first in silence or with a warning."""
    seen: dict[tuple[str, tuple[str, ...]], Given] = {}
    whole: dict[str, Given] = {}
    for each in given:
        flag = each.written.split(".")[0].replace("_", "-")
        other = whole.setdefault(each.name, each)
        same = (each.name, each.keys)
        # Keys of one spelling are put together; of two spellings, or beside a whole, one is lost.
        lost = other is not each and (
            not each.keys or not other.keys or other.written.split(".")[0].replace("_", "-") != flag
        )
        if lost or (same in seen and not each.appends):
            first = other if lost else seen[same]
            raise CheckError(
                Code.QUESTION_FLAG,
                given=f"{printable(first.written)} and {printable(each.written)} are both given"
                if first.written != each.written
                else f"{printable(each.written)} is given twice",
                allowed="each flag once: of two, vLLM takes the last whole",
                fix="remove one, or put what they say into one",
            )
        seen[same] = each


def _last(given: Sequence[Given]) -> list[Given]:
    """What vLLM keeps: keys after wholes, then the last whole, or the keys of the last spelling."""
    kept: list[Given] = []
    for name in dict.fromkeys(each.name for each in given):
        mine = [each for each in given if each.name == name]
        keyed = [each for each in mine if each.keys]
        if not keyed:
            kept.append(mine[-1])
            continue
        spellings = dict.fromkeys(each.written.split(".")[0] for each in keyed)
        last = next(reversed(spellings))
        kept += [each for each in keyed if each.written.split(".")[0] == last]
    return kept


def _merged(first: Any, second: Any) -> Any:
    """Keys of two objects put together; lists that ``+`` adds to grow."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        keys = dict.fromkeys((*first, *second))
        return {
            key: _merged(first[key], second[key])
            if key in first and key in second
            else first.get(key, second.get(key))
            for key in keys
        }
    if isinstance(first, list) and isinstance(second, list):
        return [*first, *second]
    return second


def _fold_speculative(
    values: dict[str, Any], where: dict[str, str], given: Sequence[Given]
) -> None:
    """``--spec-method`` and its like into the speculative config, as vLLM does it."""
    name = _SPEC.replace("-", "_")
    for flag, key in _SPEC_PARTS.items():
        part = flag.replace("-", "_")
        if part not in values:
            continue
        spec = dict(values.get(name, {}))
        if key in (each.replace("-", "_") for each in spec):
            raise CheckError(
                Code.QUESTION_FLAG,
                given=f"{where[part]} and {key} in {where[name]} are both given",
                allowed="one of the two",
                fix="remove one",
            )
        spec[key] = values.pop(part)
        values[name] = spec
        where.setdefault(name, where[part])
