"""What a human is told of patches that did not go over, and of those that must be looked at.

``conflicts/<group>/`` beside the new series, until nothing is left of it:

    name.conflict.txt   what stands in the patch's way: file, function, old, new, wanted lines
    name/               its message, and its files as far as they merge, with marks
    name.waits.txt      which patches it waits for
    name.look.txt       it went over, and something says that somebody must look at it

Rule: verify refuses a series that has such a folder, for it lists none of these files.
"""

import textwrap
from collections.abc import Iterator, Sequence

from vllm_av.patching.carry import Held, Outcome, Place
from vllm_av.patching.mail import Patch, message_of
from vllm_av.patching.vanished import Vanished

FOLDER = "conflicts"
CONFLICT, WAITS, LOOK = ".conflict.txt", ".waits.txt", ".look.txt"

Looks = dict[str, list[str]]
"""Name of a patch -> why somebody must look at it."""


def looks_of(found: Outcome, gone: dict[str, list[Vanished]]) -> Looks:
    """Why each patch that went over must be looked at."""
    looks = {name: [_line(place) for place in places] for name, places in found.looks.items()}
    for name, names in gone.items():
        looks.setdefault(name, []).extend(map(_vanished, names))
    return looks


def texts(found: Outcome, looks: Looks, old: str, new: str) -> dict[str, bytes]:
    """The files below ``conflicts/``, by their paths there.

    Args:
        old: the version that the series was for.
        new: the one that it shall be for.
    """
    waiting: dict[str, list[str]] = {}
    for one in found.held:
        for name in one.waits_for:
            waiting.setdefault(name, []).append(one.patch.name)
    files: dict[str, bytes] = {}
    for one in found.held:
        stem = one.patch.name.removesuffix(".patch")
        if not one.places:
            files[stem + WAITS] = _waits(one, new)
            continue
        files[stem + CONFLICT] = _conflict(one, waiting.get(one.patch.name, ()), old, new)
        files[f"{stem}/message.txt"] = message_of(one.patch).encode()
        for path, content in one.merged.items():
            if content is not None:
                files[f"{stem}/{path}"] = content
    for name, lines in looks.items():
        files[name.removesuffix(".patch") + LOOK] = _look(name, lines, new)
    return files


def _conflict(held: Held, waiting: Sequence[str], old: str, new: str) -> bytes:
    lines = [f"{held.patch.name} does not go over from vLLM {old} to {new}.", *_about(held.patch)]
    if waiting:
        lines += ["", f"Wait for it: {', '.join(waiting)}"]
    for number, place in enumerate(held.places, 1):
        lines += ["", f"{number}. {_line(place)}"]
        if place.old or place.wanted or place.new:
            lines += _piece(f"vLLM {old}, and the patches before it:", place.old)
            lines += _piece("What the patch makes of it:", place.wanted)
            lines += _piece(f"vLLM {new}, and what went over:", place.new)
    return _text(lines)


def _waits(held: Held, new: str) -> bytes:
    lines = [f"{held.patch.name} was not tried on vLLM {new}.", *_about(held.patch)]
    return _text([*lines, "", f"It waits for: {', '.join(held.waits_for)}"])


def _look(name: str, lines: Sequence[str], new: str) -> bytes:
    head = f"{name} went over to vLLM {new}, and somebody must look at it."
    return _text([head, "", *lines, "", "Remove this file once that is done."])


def _about(patch: Patch) -> list[str]:
    return ["", patch.subject, f"Why: {patch.trailers.get('Why', '')}"]


def _line(place: Place) -> str:
    at = f", line {place.line}" if place.line else ""
    function = f", in {place.function}" if place.function else ""
    return f"{place.file}{at}{function}: {place.why}"


def _vanished(gone: Vanished) -> str:
    perhaps = f"; perhaps it is {gone.perhaps} now" if gone.perhaps else ""
    return f"it uses {gone.name}, which has gone ({gone.was}){perhaps}"


def _piece(title: str, text: str) -> Iterator[str]:
    yield from ("", f"   {title}", "")
    yield textwrap.indent(text.rstrip("\n") or "(nothing)", "      ", lambda line: True)


def _text(lines: Sequence[str]) -> bytes:
    return ("\n".join(line.rstrip() for line in lines) + "\n").encode()
