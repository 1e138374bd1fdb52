"""Which patches does a patch need, and does it say so?

Each can be sent upstream, so each must apply to pristine files alone, or with those that its
trailer ``Requires:`` names and those that they name; other patches may move its lines (offsets)
and nothing else. What it needs beyond that is found by leaving patches out, and by the names that
it uses and another patch brings.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

from vllm_av.errors import PatchError
from vllm_av.patching.diff import apply_diff
from vllm_av.patching.mail import Patch
from vllm_av.patching.names import brought, imported, known, unbound, used
from vllm_av.patching.offset import relocated
from vllm_av.patching.series import Files, Series, group_of
from vllm_av.patching.tree import GROUPS

CORE = GROUPS[0]
MOST_LINES = 120
"""A patch of ``core`` adds fewer than these, so that somebody will read it."""

Read = Callable[[str], bytes | None]


def needs_of(series: Series, read: Read) -> list[str]:
    """What is wrong with the sizes of ``core`` patches, and with what patches say they need.

    Args:
        read: pristine files; None where there is no such file.
    """
    core = [patch for patch in series.patches if group_of(patch) == CORE]
    problems = [
        f"{patch.name}: it adds {patch.added} lines; a {CORE} patch adds fewer than {MOST_LINES}"
        for patch in core
        if patch.added >= MOST_LINES
    ]
    bad = list(_bad_names(series))
    if bad:
        return [*problems, *bad]  # what is needed cannot be asked with names that are wrong
    every = series.patches
    try:
        pristine: Files = {diff.path: read(diff.path) for patch in every for diff in patch.diffs}
    except PatchError:
        return problems  # told where the series is applied
    for at, patch in enumerate(every):
        before = [one for one in every[:at] if group_of(one) == CORE or group_of(patch) != CORE]
        problems += _unsaid(before, patch, closure(every, patch), pristine)
    return problems


def _bad_names(series: Series) -> Iterator[str]:
    names = [patch.name for patch in series.patches]
    for at, patch in enumerate(series.patches):
        for name in patch.requires:
            if name not in names:
                yield f"{patch.name}: Requires names {name!r}, which the series does not list"
            elif names.index(name) >= at:
                yield f"{patch.name}: Requires names {name}, which does not come before it"
            elif group_of(patch) == CORE != name.partition("/")[0]:
                yield f"{patch.name}: Requires names {name}, and {CORE} is applied without it"


def closure(patches: Sequence[Patch], patch: Patch) -> set[str]:
    """The patches that a patch names, and that those name."""
    by_name = {one.name: one for one in patches}
    found: set[str] = set()
    waiting = list(patch.requires)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += by_name[name].requires
    return found


def _unsaid(
    before: Sequence[Patch], patch: Patch, named: Collection[str], pristine: Files
) -> Iterator[str]:
    """Does the patch apply with ``named`` alone, and what else of the series does it need?"""
    try:
        start = applied([one for one in before if one.name in named], pristine)
        end = applied([patch], start)
    except PatchError as error:
        alone = f"with {', '.join(sorted(named))} alone" if named else "alone"
        missing = _smallest(before, patch, named, pristine)
        why = _say(patch, _with_names(before, patch, named, missing, pristine))
        yield f"{patch.name}: it does not apply {alone}: {why if missing else error.given}"
        return
    for name, words in _brought_by(before, patch, named, pristine, start, end):
        yield f"{patch.name}: it uses {', '.join(words)}: {_say(patch, [name])}"


def _say(patch: Patch, missing: Sequence[str]) -> str:
    return f"it needs `Requires: {', '.join([*patch.requires, *missing])}`"


def applied(patches: Sequence[Patch], files: Files) -> Files:
    """The files with the patches applied, at an offset where need be."""
    files = dict(files)
    for patch in patches:
        try:
            for diff in patch.diffs:
                old = files[diff.path]
                files[diff.path], _ = apply_diff(relocated(diff, old), old)
        except PatchError as error:
            given = f"{patch.name}: {error.given}"
            raise PatchError(error.code, given, error.allowed, error.fix) from None
    return files


def _applies(patches: Sequence[Patch], files: Files) -> bool:
    try:
        applied(patches, files)
    except PatchError:
        return False
    return True


def _smallest(
    before: Sequence[Patch], patch: Patch, named: Collection[str], pristine: Files
) -> list[str]:
    """The fewest others that let a patch apply, without those that they name; none: nothing does.

    Each is left out where the patch applies without it, those that come last first.
    """
    chosen = list(before)
    for one in reversed(before):
        fewer = [other for other in chosen if other is not one]
        if one.name not in named and _applies([*fewer, patch], pristine):
            chosen = fewer
    if not _applies([*chosen, patch], pristine):
        return []
    implied = {name for one in chosen for name in closure(before, one)}
    return [one.name for one in chosen if one.name not in {*named, *implied}]


def _with_names(
    before: Sequence[Patch],
    patch: Patch,
    named: Collection[str],
    missing: Sequence[str],
    pristine: Files,
) -> list[str]:
    """What a patch does not apply without, and what it uses besides; in the series' order."""
    if not missing:
        return []
    all_named = {*named, *missing}
    for one in before:
        if one.name in missing:
            all_named |= closure(before, one)
    start = applied([one for one in before if one.name in all_named], pristine)
    end = applied([patch], start)
    found = {*missing}
    found |= {name for name, _ in _brought_by(before, patch, all_named, pristine, start, end)}
    return [one.name for one in before if one.name in found]


def _brought_by(
    before: Sequence[Patch],
    patch: Patch,
    named: Collection[str],
    pristine: Files,
    start: Files,
    end: Files,
) -> Iterator[tuple[str, list[str]]]:
    """What a patch uses and only a patch brings that it does not name: that one, and the names.

    Args:
        start: the files that the patch changes into ``end``.
    """
    uses: set[str] = set()
    bare: dict[str, set[str]] = {}
    there = {name for path in start for name in known(path, start[path])}
    for diff in patch.diffs:
        uses |= used(diff.path, start[diff.path], end[diff.path])
        bare[diff.path] = unbound(diff.path, start[diff.path], end[diff.path])
        there |= brought(diff.path, start[diff.path], end[diff.path])
    files = pristine
    for one in before:
        try:
            after = applied([one], files)
        except PatchError:
            return  # told of that patch
        found: set[str] = set()
        for diff in one.diffs:
            change = diff.path, files[diff.path], after[diff.path]
            found |= (brought(*change) & uses) - there
            found |= imported(*change) & bare.get(diff.path, set())
        if found and one.name not in named:
            yield one.name, sorted(found)
        files = after
