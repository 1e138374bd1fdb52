"""Is a series as it must be? Every problem is told, not the first one.

Every patch is listed and everything listed exists; messages carry their trailers; each patch
applies exactly to the pristine files and, written again from its result, keeps every byte; the
results compile; no patch knows of vllm_av; a patch of ``core`` is small, and each says which it
needs (:mod:`vllm_av.patching.needs`) and has what it is sent with
(:mod:`vllm_av.patching.upstream`).
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vllm_av.errors import Code, PatchError
from vllm_av.patching.edge import told
from vllm_av.patching.goal import pristine_files
from vllm_av.patching.mail import Patch, faults, parse_patch
from vllm_av.patching.needs import needs_of
from vllm_av.patching.series import (
    Files,
    Series,
    apply_patch,
    entries,
    group_of,
    series_folder,
    stray,
    versions,
)
from vllm_av.patching.state import load_manifest
from vllm_av.patching.tree import Source, Tree, find_tree, wheel_source
from vllm_av.patching.upstream import upstream_problems
from vllm_av.patching.wheels import bad_pin, pinned_wheel


@dataclass(frozen=True)
class Report:
    """The answer of :func:`verify`. Right where ``problems`` is empty."""

    version: str
    against: str
    added: dict[str, int]
    """Lines added by each patch, in the order of the series."""
    problems: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The same, for ``--json``."""
        return asdict(self)


def tree_source(tree: Tree) -> Source:
    """The pristine files of an installed vLLM, patched or not."""
    manifest = load_manifest(tree)

    def read(path: str) -> bytes | None:
        if path not in tree.record:
            return None  # whatever lies there, the wheel did not bring it
        file = pristine_files(tree, manifest, [path])[path]
        return file.content if file else None

    return Source(str(tree.site), tree.dist, tree.version, read)


@told()
def source_at(path: Path) -> Source:
    """The pristine files of a wheel, or of the vLLM below a folder."""
    return tree_source(find_tree(path)) if path.is_dir() else wheel_source(path)


@told()
def verify(root: Path, source: Source) -> Report:
    """Check the series below ``root`` for the vLLM that ``source`` holds.

    Raises:
        PatchError: AV-PATCH-NO-SERIES, or AV-PATCH-SERIES where ``series`` itself is malformed.
    """
    folder = series_folder(root, source.version)
    listed = entries(folder)
    problems = [f"{name}: lies beside the series and is not listed" for name in stray(folder)]
    patches: list[Patch] = []
    for name in listed:
        try:
            patches.append(parse_patch(name, (folder / name).read_bytes()))
        except FileNotFoundError:
            problems.append(f"{name}: is listed and does not exist")
        except OSError as error:
            problems.append(f"{name}: cannot be read ({error.strerror})")
        except PatchError as error:
            problems.append(f"{name}: {error.given}")
    series = Series(folder.name, folder, tuple(patches))
    problems += [*problems_of(series, source), *needs_of(series, source.read)]
    problems += upstream_problems(root, listed)
    added = {patch.name: patch.added for patch in patches}
    return Report(folder.name, source.label, added, tuple(problems))


@told()
def verify_all(root: Path, say: Callable[[str], None] = lambda line: None) -> tuple[Report, ...]:
    """Check every series below ``root`` against the pristine wheel that is pinned for it.

    Args:
        say: is told of what takes long.

    Raises:
        PatchError: as :func:`verify` and :func:`vllm_av.patching.wheels.pinned_wheel`.
    """
    found = versions(root)
    if not found:
        raise PatchError(
            Code.PATCH_NO_SERIES,
            f"there is no series below {root}",
            "at least one",
            "install vllm_av again",
        )
    reports = []
    for version in found:
        source = wheel_source(pinned_wheel(version, root, say))
        if source.version != version:
            raise bad_pin(root, version, f"the wheel is {source.dist} {source.version}")
        reports.append(verify(root, source))
    return tuple(reports)


def problems_of(series: Series, source: Source) -> list[str]:
    """What is wrong with patches that were read: their messages, and what they do."""
    problems = [f"{patch.name}: {fault}" for patch in series.patches for fault in faults(patch)]
    for groups in _choices(series.patches):
        chosen = series.only(groups)
        problems += [p for p in _apply_all(chosen, source) if p not in problems]
    return problems


def _choices(patches: Iterable[Patch]) -> list[set[str]]:
    """What users apply: every group, and ``core`` without the others."""
    present = {group_of(patch) for patch in patches}
    return [present, {"core"}] if present > {"core"} else [present]


def _apply_all(series: Series, source: Source) -> list[str]:
    problems: list[str] = []
    files: Files = {}
    for patch in series.patches:
        try:
            for diff in patch.diffs:
                if diff.path not in files:
                    files[diff.path] = source.read(diff.path)
            step = apply_patch(patch, files)
        except PatchError as error:
            problems.append(error.given)
            continue
        files |= step.after
        again = step.render().text
        if again != patch.text:
            problems.append(f"{patch.name}: {_first_difference(patch.text, again)}")
    problems += [
        f"{path}: does not compile with the series applied: {why}"
        for path, content in sorted(files.items())
        if content is not None and path.endswith(".py") and (why := syntax_fault(path, content))
    ]
    return problems


def _first_difference(text: bytes, again: bytes) -> str:
    lines = zip(text.split(b"\n"), again.split(b"\n"), strict=False)
    for number, (old, new) in enumerate(lines, 1):
        if old != new:
            return (
                f"line {number} is {old.decode(errors='replace')!r}, and written again from what "
                f"the patch does it is {new.decode(errors='replace')!r}"
            )
    return "written again from what the patch does it has another end"


def syntax_fault(path: str, content: bytes) -> str | None:
    """Why a file does not compile; None: it does."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(content, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return str(error)
    return None
