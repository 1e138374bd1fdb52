"""Find where a patch fits once other patches have moved its lines: offsets, no fuzz.

Rule: as ``git apply`` does it. Every context line must be there; a hunk for the first line stays at
the beginning, and one without lines after its last change at the end of the file. Only for asking
whether a patch would apply: what is applied to a vLLM is exact (:mod:`vllm_av.patching.diff`).
"""

from collections.abc import Sequence
from dataclasses import replace

from vllm_av.patching.diff import FileDiff, Hunk, conflict
from vllm_av.patching.script import split_lines


def relocated(diff: FileDiff, old: bytes | None) -> FileDiff:
    """The same change with the line numbers that it has in ``old``; the nearest place counts.

    Raises:
        PatchError: AV-PATCH-CONFLICT, naming the hunk that fits nowhere.
    """
    lines = split_lines(old or b"")
    found: list[Hunk] = []
    at = shift = grown = 0
    for hunk in diff.hunks:
        wanted = [line for sign, line in hunk.lines if sign != b"+"]
        start = hunk.old_start - bool(wanted) + shift
        places = [
            place
            for place in range(at, len(lines) - len(wanted) + 1)
            if lines[place : place + len(wanted)] == wanted and _anchored(hunk, place, lines)
        ]
        if not places:
            raise conflict(diff, f"the lines of the hunk at line {hunk.old_start} are not there")
        place = min(places, key=lambda place: abs(place - start))
        shift += place - start
        made = sum(sign != b"-" for sign, _ in hunk.lines)
        old_start, new_start = place + bool(wanted), place + grown + bool(made)
        found.append(Hunk(old_start, new_start, hunk.lines))
        at = place + len(wanted)
        grown += made - len(wanted)
    return replace(diff, hunks=tuple(found))


def _anchored(hunk: Hunk, place: int, lines: Sequence[bytes]) -> bool:
    sign, _ = hunk.lines[-1]
    end = place + sum(sign != b"+" for sign, _ in hunk.lines)
    return (hunk.old_start > 1 or place == 0) and (sign == b" " or end == len(lines))
