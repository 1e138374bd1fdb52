"""The steps of an image in their order, and the way back.

Rule: all or nothing. What a failed run has put into the image it takes out again; where even that
fails, it says so.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ci.image.base import Base, find_base, refuse_unmet
from ci.image.refusal import Refusal, not_written
from ci.image.targets import Target
from ci.image.wheel import own, place, read_wheel, remove

Undo = list[tuple[str, Callable[[], object]]]
LAST_SECOND = (2**63 - 1) // 10**9
"""Of those whose nanoseconds a time of a file is told in: in the year 2262."""


@dataclass(frozen=True)
class Job:
    """One image to make.

    Args:
        root: where the image's files are; ``/`` in a build.
        reference: of the base image.
        wheels: the folder that holds the wheel.
        dockerfile: the text that is built.
    """

    root: Path
    target: Target
    reference: str
    wheels: Path
    dockerfile: str


def build(job: Job, environ: dict[str, str]) -> list[str]:
    """Make the image's files; what was done, for people.

    Raises:
        Refusal: and vllm_av's own errors; the image is then as it was, or the text says what it is.
    """
    at = created(environ)
    _refuse_reference(job)
    is_ours = job.root.resolve() == Path("/")
    base = find_base(job.root, job.target, sys.version_info[:2] if is_ours else None)
    wheel = read_wheel(job.wheels)
    refuse_unmet(base, wheel.metadata, job.target)
    mtime = int(at.timestamp())
    undo: Undo = []
    with _all_or_nothing(undo):
        placed, made = place(wheel, base, mtime)
        undo.append((f"vllm_av in {base.site}", lambda: remove(made)))
        # From here on vllm_av is there, the one of the image and no other.
        sys.path.insert(0, str(base.site))
        _refuse_another(base)
        try:
            from ci.image import labels, manifest, sbom, series
            from vllm_av.patching.install import revert
        except ImportError as error:
            raise Refusal(
                "AV-IMAGE-NEEDS",
                f"vllm_av cannot be imported in {base.site} ({error})",
                "a base image with all that vllm_av needs, which comes with vLLM",
                f"take {job.target.base} as the vLLM project published it",
            ) from None

        labels.refuse_stale(job.target, job.dockerfile)
        applied = series.apply_series(base, job.target, at)
        if applied.done == "applied":
            undo.append((f"the patches in {base.site}", lambda: revert(applied.tree)))
        for path in sorted(applied.tree.state.rglob("*")):
            os.utime(path, (mtime, mtime))
        series.refuse_unless_applied(base)
        folder = base.root / labels.FOLDER.strip("/")
        _refuse_others(folder, (labels.MANIFEST, labels.SBOM), is_fresh=bool(made))
        document = manifest.manifest(base, job.reference, wheel, applied, at)
        files = {
            labels.MANIFEST: manifest.rendered(document),
            labels.SBOM: manifest.rendered(sbom.sbom(document, job.target)),
        }
        if not folder.exists():
            undo.append((str(folder), lambda: remove([folder])))
        _write(folder, files, base, mtime)
    patches = f"{len(applied.series.patches)} patches of {', '.join(applied.series.groups)}"
    return [
        f"vllm_av {wheel.version}: {placed} in {base.site}",
        f"{base.dist} {base.version}: {patches}: {applied.done}",
        f"{folder}: {', '.join(files)}",
    ]


def created(environ: dict[str, str]) -> datetime:
    """When: ``SOURCE_DATE_EPOCH``, or now.

    Raises:
        Refusal: AV-IMAGE-BASE, on anything but seconds since 1970.
    """
    said = environ.get("SOURCE_DATE_EPOCH", "")
    if not said:
        return datetime.now(UTC).replace(microsecond=0)
    if re.fullmatch("[0-9]{1,10}", said) and int(said) <= LAST_SECOND:
        return datetime.fromtimestamp(int(said), UTC)
    raise Refusal(
        "AV-IMAGE-BASE",
        f"SOURCE_DATE_EPOCH is {said!r}",
        f"seconds since 1970, a whole number from 0 to {LAST_SECOND}",
        "correct it, or leave it away for now",
    )


@contextmanager
def _all_or_nothing(undo: Undo) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        left = []
        for what, take_back in reversed(undo):
            try:
                take_back()
            except Exception as another:
                left.append(f"{what} ({another})")
        if left:
            raise Refusal(
                "AV-IMAGE-WRITE",
                f"{error}; and these could not be taken back: {'; '.join(left)}",
                "an image whose own user may write its packages, and room for them",
                "throw this image away, mend that, and build again",
            ) from error
        if isinstance(error, OSError):
            raise not_written(error, "the image is as it was") from error
        raise


def _refuse_reference(job: Job) -> None:
    if not re.fullmatch("[!-~]+", job.reference):
        raise Refusal(
            "AV-IMAGE-BASE",
            f"--base is {job.reference!a}",
            "the reference of an image, which is ASCII without a space",
            f"give it as the build does: {job.target.base}",
        )


def _refuse_others(folder: Path, names: tuple[str, ...], is_fresh: bool) -> None:
    """See to it that what is written replaces nothing but what a run of ours wrote.

    Those files are the last of a run: where there was no vllm_av, they are somebody else's.
    """
    for path in (folder / name for name in names):
        if path.is_symlink() or (path.exists() and (is_fresh or not path.is_file())):
            raise Refusal(
                "AV-IMAGE-BASE",
                f"{path} is in the way, and no build of vllm_av wrote it",
                f"nothing of that name in {folder}",
                "build from an image of the vLLM project, which has nothing there",
            )


def _refuse_another(base: Base) -> None:
    import vllm_av

    if Path(vllm_av.__file__).resolve().parents[1] != base.site:
        raise Refusal(
            "AV-IMAGE-BASE",
            f"Python takes vllm_av from {Path(vllm_av.__file__).parents[1]}",
            f"that of the image, in {base.site}",
            "unset what puts another one on its path",
        )


def _write(folder: Path, files: dict[str, bytes], base: Base, mtime: int) -> None:
    for above in reversed([folder, *folder.parents]):
        if not above.is_dir():
            above.mkdir()
            own(above, base.site, 0o755, mtime)
    fresh = {folder / name: folder / f"{name}.new" for name in files}
    try:
        for path, new in fresh.items():
            new.unlink(missing_ok=True)  # of a killed run
            new.write_bytes(files[path.name])
            own(new, base.site, 0o644, mtime)
        for path, new in fresh.items():
            os.replace(new, path)
    except OSError:
        for new in fresh.values():
            with suppress(OSError):
                new.unlink(missing_ok=True)
        raise
    os.utime(folder, (mtime, mtime))
