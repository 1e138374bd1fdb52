"""Applies the series to the base image's vLLM, with the vllm_av that was just put there.

Rule: each file is the pinned one twice: before, as vLLM's RECORD and the object ids in the patches
say; after, as those ids say. What then counts is what ``vllm-av patch status`` answers, asked in a
process of its own.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime

from ci.image.base import Base
from ci.image.refusal import Refusal
from ci.image.targets import Target
from vllm_av.patching.goal import pristine_files
from vllm_av.patching.install import apply, select
from vllm_av.patching.series import Files, Series, apply_patch, read_series, series_root
from vllm_av.patching.state import load_manifest
from vllm_av.patching.tree import Tree, digest, find_tree


@dataclass(frozen=True)
class Applied:
    """A series in an image's vLLM.

    Args:
        done: what the run did, in a word or two.
        changed: path below the packages -> sha256 before and after; None: no such file.
    """

    done: str
    tree: Tree
    series: Series
    changed: dict[str, tuple[str | None, str | None]]


def series_of(target: Target) -> Series:
    """The patches that a target's image bears."""
    return read_series(series_root(), target.vllm).only(target.groups)


def apply_series(base: Base, target: Target, at: datetime) -> Applied:
    """Apply what ``target`` bears.

    Raises:
        Refusal: AV-IMAGE-PINS; PatchError: as ``vllm-av patch apply``. The tree is as it was.
    """
    tree = find_tree(base.site)
    series = select(read_series(series_root(), tree.version), tree, target.groups)
    changed = _proved(tree, series)
    outcome = apply(tree, series, at)
    wrong = [path for path, (_, after) in changed.items() if _sum(tree, path) != after]
    if wrong:
        raise _not_pinned(f"{', '.join(wrong)} after patching")
    return Applied(outcome.done, tree, series, changed)


def refuse_unless_applied(base: Base) -> None:
    """Ask the image's own ``vllm-av patch status``.

    Raises:
        Refusal: AV-IMAGE-PINS, unless it says ``applied``.
    """
    command = [sys.executable, "-P", "-B", "-m", "vllm_av", "patch", "status", "--json"]
    done = subprocess.run(
        [*command, f"--site={base.site}"],
        env={**os.environ, "PYTHONPATH": str(base.site)},
        cwd=base.site,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        said = json.loads(done.stdout)
        state = str(said.get("state", said))
    except (ValueError, AttributeError):
        state = (done.stderr or done.stdout).strip().rpartition("\n")[2]
    if done.returncode or state != "applied":
        raise _not_pinned(f"`vllm-av patch status` says {state!r}")


def _proved(tree: Tree, series: Series) -> dict[str, tuple[str | None, str | None]]:
    """What the series makes of each file, computed in memory against the ids in its patches."""
    paths = sorted({diff.path for patch in series.patches for diff in patch.diffs})
    pristine = pristine_files(tree, load_manifest(tree), paths, series)
    before: Files = {path: file.content if file else None for path, file in pristine.items()}
    files = dict(before)
    for patch in series.patches:
        step = apply_patch(patch, files)
        if step.render().text != patch.text:
            raise _not_pinned(f"what {patch.name} is applied to, or makes of it,")
        files |= step.after
    return {path: (_of(before[path]), _of(files[path])) for path in paths}


def _sum(tree: Tree, path: str) -> str | None:
    return _of(tree.read(path))


def _of(content: bytes | None) -> str | None:
    return None if content is None else digest(content)


def _not_pinned(what: str) -> Refusal:
    return Refusal(
        "AV-IMAGE-PINS",
        f"{what} is not what the series pins",
        "vLLM's files as its wheel brought them, and as the series leaves them",
        "take the base image as it was published; `vllm-av patch verify --all` checks the series",
    )
