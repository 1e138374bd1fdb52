"""The words of a ``vllm serve`` command line -> its flags, as vLLM's parser takes them.

``--flag value``, ``--flag=value``, dashes or underscores, the short names, ``--no-flag``, a name
cut short where only one flag begins so, ``--config.key value`` and ``--config.key+ value``.

Rule: a word that vLLM would take for something else is a mistake here, never a guess.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from vllm_av.config.text import printable, shown
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.flags.known import LISTS, OPTIONAL, PLAIN, SHORT, SWITCHES, VALUES

MODEL = "model"
_LEVEL = "optimization-level"
_ALL = SWITCHES | PLAIN | LISTS | VALUES
_TURNED = {"enable-": "disable-", "disable-": "enable-"}


@dataclass(frozen=True)
class Given:
    """A flag as it was given.

    Args:
        name: the long one, with dashes; ``model`` for the word that no flag owns.
        value: a word, several, or true or false of a switch.
        written: as the user wrote the flag, its keys included.
        words: all of it.
        keys: of ``--config.key.key``.
        appends: ``--config.key+``.
        known: whether a supported vLLM has it.
        file: the YAML file that it stands in; None for the command line.
    """

    name: str
    value: str | bool | tuple[str, ...]
    written: str
    words: tuple[str, ...]
    keys: tuple[str, ...] = ()
    appends: bool = False
    known: bool = True
    file: str | None = None

    @property
    def place(self) -> str:
        """Where it stands, for people."""
        if self.file:
            return f"{printable(self.name)} in {printable(self.file)}"
        if self.written == self.words[0] == self.value:
            return "the model named first"
        return printable(self.written)


def givens(args: Sequence[str], *, file: str | None = None) -> Iterator[Given]:
    """Every flag of ``args``, in order.

    Raises:
        CheckError: ``AV-QUESTION-FLAG``: a misspelt flag, one without its value, one word too many.
    """
    place, model = 0, False
    while place < len(args):
        word = args[place]
        if not _is_flag(word):
            if model:
                raise _mistake(
                    f"the word {shown(word)} belongs to no flag",
                    "one model, then flags with their values",
                    "quote a value with spaces, or remove the word",
                )
            model = True
            yield Given(MODEL, word, word, (word,), file=file)
            place += 1
            continue
        given = _one(args, place, file)
        yield given
        place += len(given.words)


def misspelt(written: str, meant: str) -> CheckError:
    """A flag that is nearly another one."""
    return _mistake(f"there is no flag {shown(written)}", f"{meant}, and others", f"write {meant}")


def _is_flag(word: str) -> bool:
    """A dash and a digit is a negative number."""
    return word.startswith("-") and len(word) > 1 and not word[1].isdigit()


def _one(args: Sequence[str], place: int, file: str | None) -> Given:
    word = args[place]
    if word == "--":
        raise _mistake("there is a word --", "flags with their values", "remove it")
    written, equals, attached = word.partition("=")
    if word.startswith("-O") and word != "-O":
        level = word[3:] if word[2:3] == "=" else word[2:]
        return Given(_LEVEL, level, "-O", (word,), file=file)
    flag, *keys = written.split(".")
    appends = bool(keys) and keys[-1].endswith("+")
    if appends:
        keys[-1] = keys[-1][:-1]
    name, positive = _name(flag, written)
    following = args[place + 1] if place + 1 < len(args) else None
    free = following is not None and not _is_flag(following)
    words: tuple[str, ...] = (word,)
    value: str | bool | tuple[str, ...]
    if keys:
        if name in SWITCHES | PLAIN | LISTS or "" in keys:
            raise _mistake(
                f"{shown(written)} gives a key of a flag that has none",
                "keys of JSON flags, such as --compilation-config.cudagraph_mode",
                "remove what follows the point",
            )
        value = attached if equals else _needed(written, following)
        words = (word,) if equals else (word, value)
    elif name in SWITCHES or name in PLAIN:
        if equals:
            raise _mistake(
                f"{written} is a switch, and is given the value {shown(attached)}",
                f"{written}, or without it",
                f"write {written} alone",
            )
        value = positive
    elif name in LISTS and not equals:
        rest = args[place + 1 :]
        count = next((at for at, each in enumerate(rest) if _is_flag(each)), len(rest))
        if not count:
            raise _lacking(written)
        value = tuple(rest[:count])
        words = (word, *value)
    elif name in OPTIONAL and not equals and not free:
        value = ""
    elif name in _ALL:
        value = attached if equals else _needed(written, following)
        words = (word,) if equals else (word, value)
        if name in LISTS:
            value = (value,)
    else:
        # Of another vLLM: whether a word is its value cannot be known; a model stands first.
        value = attached if equals else str(following) if free else True
        words = (word, str(value)) if free and not equals else (word,)
        return Given(name, value, written, words, tuple(keys), appends, known=False, file=file)
    return Given(name, value, written, words, tuple(keys), appends, file=file)


def _name(flag: str, written: str) -> tuple[str, bool]:
    """The long name, and false where the flag turns a switch off.

    Raises:
        CheckError: nearly a flag, or the beginning of several.
    """
    if not flag.startswith("--"):
        if flag in SHORT:
            return SHORT[flag], True
        if flag == "-O":
            return _LEVEL, True
        raise _mistake(
            f"there is no flag {shown(written)}",
            f"the short names {', '.join(sorted(SHORT))} and -O",
            "write the long name",
        )
    name = flag[2:].replace("_", "-")
    for candidate in (name, *_with_prefix(name)):
        if found := _exact(candidate):
            return found
    near = get_close_matches(name, (*_ALL, *_negated()), n=1, cutoff=0.85)
    if near:
        raise misspelt(flag, f"--{near[0]}")
    return name, True


def _with_prefix(name: str) -> Iterator[str]:
    """The one flag that begins so, as argparse completes a name."""
    begin = [each for each in (*_ALL, *_negated()) if each.startswith(name)]
    if len(begin) == 1:
        yield begin[0]


def _exact(name: str) -> tuple[str, bool] | None:
    if name in _ALL:
        return name, True
    if name.startswith("no-") and name[3:] in SWITCHES:
        return name[3:], False
    for prefix, other in _TURNED.items():
        inverse = other + name.removeprefix(prefix)
        if name.startswith(prefix) and inverse in SWITCHES:
            return inverse, False
    return None


def _negated() -> Iterator[str]:
    yield from (f"no-{name}" for name in SWITCHES)


def _needed(written: str, following: str | None) -> str:
    if following is None or _is_flag(following):
        raise _lacking(written)
    return following


def _lacking(written: str) -> CheckError:
    flag = printable(written)
    return _mistake(f"{flag} is given no value", f"{flag} VALUE", "add the value")


def _mistake(given: str, allowed: str, fix: str) -> CheckError:
    return CheckError(Code.QUESTION_FLAG, given=given, allowed=allowed, fix=fix)
