"""Start the series for a new vLLM from the newest one that there is.

Rule: the new folder is written elsewhere and renamed into place, so that a command that is killed
leaves no half of it; the next one removes what it left. Each time that it goes on with a folder, it
takes the patches there as they are, in the old order, and tries those that are missing.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vllm_av.errors import Code, PatchError
from vllm_av.patching.carry import Outcome, Read, carry_series
from vllm_av.patching.conflicts import FOLDER, LOOK, Looks, looks_of, texts
from vllm_av.patching.edge import told
from vllm_av.patching.files import (
    locked,
    make_folder,
    not_written,
    remove_folder,
    sync,
    write_file,
)
from vllm_av.patching.firstwheel import pin_text, wheel_at_hand, wheel_fetched
from vllm_av.patching.needs import needs_of
from vllm_av.patching.series import (
    PACKAGED,
    PIN,
    TESTED,
    Files,
    Series,
    Step,
    apply_patch,
    read_series,
    versions,
)
from vllm_av.patching.tree import Source
from vllm_av.patching.vanished import Wheel, vanished
from vllm_av.patching.verify import problems_of
from vllm_av.patching.version import key_of, refuse_no_version
from vllm_av.patching.wheels import pinned_wheel, read_pin

Say = Callable[[str], None]


@dataclass(frozen=True)
class Started:
    """What was written. Clean: nothing is left to do but the tests."""

    version: str
    base: str
    """The version whose series was carried over."""
    wheel: str
    folder: str
    carried: tuple[str, ...]
    taken: tuple[str, ...]
    """Patches that the new vLLM has already."""
    conflicts: tuple[dict[str, Any], ...]
    """Patches that did not go over, with their places."""
    waiting: dict[str, tuple[str, ...]]
    """Patches that were not tried, and those that they wait for."""
    looks: Looks
    problems: tuple[str, ...]
    """What else :func:`vllm_av.patching.verify.verify` will say, and the seams that are missing."""
    notes: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Is the series whole, and nothing to be looked at?"""
        return not (self.conflicts or self.waiting or self.looks or self.problems)

    def as_dict(self) -> dict[str, Any]:
        """The same, for ``--json``."""
        return {**asdict(self), "clean": self.clean}


@told()
def start(
    version: str,
    root: Path,
    *,
    base: str | None = None,
    wheel: Path | None = None,
    distribution: str = "vllm",
    to: Path | None = None,
    go_on: bool = False,
    seams: Callable[[Read], Sequence[str]] = lambda read: (),
    say: Say = lambda line: None,
) -> Started:
    """Carry a series over to another version of vLLM and write it.

    Args:
        root: the folder with one series a version.
        base: the version to take it from; None: the newest below ``version``.
        wheel: of the new version; None: pip fetches it.
        to: the folder to make the new one in; None: ``root``.
        go_on: with a folder that is there; else it must not be.
        seams: what a patched vLLM, whose files it reads, lacks for this package.

    Raises:
        PatchError: AV-PATCH-VERSION, AV-PATCH-NO-SERIES, AV-PATCH-WHEEL, AV-PATCH-SERIES,
            AV-PATCH-CONFLICT, AV-PATCH-WRITE, AV-PATCH-BUSY.
        SetupError: AV-CACHE-DIR.
    """
    refuse_no_version(version)
    base = _base(root, version, base)
    if to is None and root.name == PACKAGED:
        raise PatchError(
            Code.PATCH_VERSION,
            f"{root} belongs to an installed vllm_av",
            "a new series in a folder of your own, or in a checkout",
            "name a folder with --to",
        )
    place = to or root
    make_folder(place)
    with locked(place):
        _end_what_was_begun(place, version)
        there = _there(place, version, go_on=go_on)
        old = Wheel.at(pinned_wheel(base, root, say))
        if wheel is not None:
            pin = wheel_at_hand(wheel, version)
        elif there:
            pin = read_pin(place, version)
        else:
            pin = wheel_fetched(version, distribution, read_pin(root, base), say)
        new = Wheel.at(pinned_wheel(pin, say=say))
        steps = _steps(read_series(root, base), old.source)
        mine = _steps(there, new.source) if there else []
        found = _carried(steps, mine, old, new)
        looks = looks_of(found, vanished(found.steps, old, new))
        if there:
            looks = _still(looks, [step.patch.name for step in mine], there.folder)
        files = {PIN: pin_text(pin).encode(), "series": _listing(found, steps)}
        files |= {step.patch.name: step.patch.text for step in found.steps}
        for path, text in texts(found, looks, base, version).items():
            files[f"{FOLDER}/{path}"] = text
        if there and (there.folder / TESTED).is_file():
            files[TESTED] = (there.folder / TESTED).read_bytes()
        series = Series(version, place / version, tuple(step.patch for step in found.steps))
        _write(place, version, files)
    problems = [*problems_of(series, new.source), *needs_of(series, new.source.read)]
    if not found.held:
        lacks = seams(lambda path: found.files.get(path, new.source.read(path)))
        problems += [f"the seam is missing: {line}" for line in lacks]
    return Started(
        version,
        base,
        pin.file,
        str(place / version),
        tuple(step.patch.name for step in found.steps),
        found.taken,
        tuple(
            {"patch": one.patch.name, "places": [asdict(place) for place in one.places]}
            for one in found.held
            if one.places
        ),
        {one.patch.name: one.waits_for for one in found.held if not one.places},
        looks,
        tuple(problems),
        found.notes,
    )


def _base(root: Path, version: str, base: str | None) -> str:
    found = versions(root)
    if base is not None:
        if base not in found or base == version:
            raise PatchError(
                Code.PATCH_NO_SERIES,
                f"no series for vLLM {base} to start from",
                f"there is one for: {', '.join(found) or 'no version'}",
                "name another one of them with --from",
            )
        return base
    below = [one for one in found if key_of(one) < key_of(version)]
    if not below:
        raise PatchError(
            Code.PATCH_VERSION,
            f"vLLM {version} is older than every series",
            f"one newer than {', '.join(found) or 'a series'}",
            "name the series to start from with --from",
        )
    return below[-1]


def _there(place: Path, version: str, *, go_on: bool) -> Series | None:
    """The series to go on with; None: there is none, and none is meant to be."""
    folder = place / version
    if go_on and not (folder / "series").is_file():
        raise PatchError(
            Code.PATCH_VERSION,
            f"there is no series in {folder} to go on with",
            "--continue takes up what this command wrote before",
            "run it without --continue first",
        )
    if not go_on and folder.exists():
        raise PatchError(
            Code.PATCH_VERSION,
            f"{folder} is there already",
            "a version that has no series",
            "go on with it by --continue, or remove it to start anew",
        )
    return read_series(place, version) if go_on else None


def _steps(series: Series, source: Source) -> list[Step]:
    """Each patch where it applies.

    Raises:
        PatchError: AV-PATCH-CONFLICT.
    """
    files: Files = {}
    steps = []
    for patch in series.patches:
        for diff in patch.diffs:
            if diff.path not in files:
                files[diff.path] = source.read(diff.path)
        steps.append(apply_patch(patch, files))
        files |= steps[-1].after
    return steps


def _carried(old_steps: Sequence[Step], mine: Sequence[Step], old: Wheel, new: Wheel) -> Outcome:
    """Those that are there, each in the place that it has in the old series; then the others.

    Where one of them cannot stand there, they stay as they are, before all others.
    """
    by_name = {step.patch.name: step for step in mine}
    known = [step.patch.name for step in old_steps]
    more = [step for step in mine if step.patch.name not in known]

    def carry(steps: Sequence[Step]) -> Outcome:
        return carry_series(steps, old.source.read, new.source.read, new.named_alike(old))

    found = carry([*(by_name.get(step.patch.name, step) for step in old_steps), *more])
    if {*by_name} <= {step.patch.name for step in found.steps}:
        return found
    return carry([*mine, *(step for step in old_steps if step.patch.name not in by_name)])


def _still(looks: Looks, mine: Sequence[str], folder: Path) -> Looks:
    """Of patches that were there, only what nobody has removed; as it was told."""
    kept = {name: lines for name, lines in looks.items() if name not in mine}
    for name in mine:
        text = folder / FOLDER / (name.removesuffix(".patch") + LOOK)
        if text.is_file():
            lines = text.read_text(encoding="utf-8").splitlines()
            kept[name] = [line for line in lines[2:-2] if line]
    return kept


def _listing(found: Outcome, steps: Sequence[Step]) -> bytes:
    """``series``: what went over, and in comments where the others would stand."""
    held = {one.patch.name for one in found.held}
    left = [step.patch.name for step in found.steps]
    lines: list[str] = []
    for step in steps:
        name = step.patch.name
        if name in held:
            lines.append(f"# not yet: {name}")
        elif name in left:
            end = left.index(name) + 1
            lines += left[:end]
            left = left[end:]
    return "".join(f"{line}\n" for line in [*lines, *left]).encode()


def _part(place: Path, version: str) -> Path:
    return place / f".{version}.part"


def _end_what_was_begun(place: Path, version: str) -> None:
    """Put back what a command that was killed had moved away, and remove what it had written."""
    part = _part(place, version)
    if (part / "old").is_dir() and not (place / version).exists():
        os.rename(part / "old", place / version)
    remove_folder(part)


def _swap(new: Path, folder: Path, old: Path) -> None:
    """Rename ``new`` to ``folder``, and what was there before to ``old``; or nothing."""
    was_there = folder.exists()
    if was_there:
        os.rename(folder, old)
    try:
        os.rename(new, folder)
    except OSError:
        if was_there:
            os.rename(old, folder)
        raise


def _write(place: Path, version: str, files: Mapping[str, bytes]) -> None:
    part, folder = _part(place, version), place / version
    try:
        for path, content in files.items():
            target = part / version / path
            make_folder(target.parent)
            write_file(target, content)
        _swap(part / version, folder, part / "old")
        sync(place)
        remove_folder(part)
    except OSError as error:
        raise not_written(folder, error, left="it is as it was") from error
