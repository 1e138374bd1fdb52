"""Whether the patch series for the installed vLLM is applied, asked of :mod:`vllm_av.patching`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from vllm_av.doctor.findings import Finding
from vllm_av.errors import Code, VllmAvError

State = Literal["no vllm", "no series", "not applied", "applied", "outdated", "drifted", "unknown"]

_APPLY = "run: vllm-av patch apply"


@dataclass(frozen=True)
class Patches:
    """The patch status of the installed vLLM.

    Args:
        state: in one word or two.
        reason: why it is not simply applied or not applied; "" otherwise.
        code: the code that the patch tool would refuse with; None where it would not.
        fix: what to do; "" where nothing is wrong.
        series: names of the patches shipped for this vLLM.
        applied: names of the patches that are in.
        files: files that somebody changed.
    """

    state: State
    reason: str = ""
    code: Code | None = None
    fix: str = ""
    series: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


def read_patches() -> Patches:
    """Look at the vLLM of this environment; never raises, and never imports vLLM."""
    try:
        from vllm_av.patching.series import read_series, series_root
        from vllm_av.patching.state import drifted, load_manifest
        from vllm_av.patching.tree import find_tree, groups_for
    except ImportError as error:
        return Patches("unknown", f"the patch tool cannot be loaded ({error})", Code.VERB_IMPORT)
    try:
        tree = find_tree()
    except VllmAvError as error:
        state: State = "no vllm" if error.code == Code.PATCH_NO_VLLM else "unknown"
        return Patches(state, error.given, error.code, error.fix)
    try:
        shipped = read_series(series_root(), tree.version)
    except VllmAvError as error:
        state = "no series" if error.code == Code.PATCH_NO_SERIES else "unknown"
        return Patches(state, error.given, error.code, error.fix)
    series = shipped.only(groups_for(tree.dist, tree.version))
    names = tuple(patch.name for patch in series.patches)
    try:
        manifest = load_manifest(tree)
        if manifest is None:
            return Patches("not applied", series=names)
        files = tuple(drifted(tree.site, manifest.sources))
    except (VllmAvError, OSError) as error:
        code = error.code if isinstance(error, VllmAvError) else Code.PATCH_STATE
        return Patches("unknown", str(error), code, series=names)
    applied = tuple(patch.name for patch in manifest.patches)
    if files:
        return Patches("drifted", series=names, applied=applied, files=files)
    state = "applied" if manifest.digest == series.digest else "outdated"
    return Patches(state, series=names, applied=applied)


def find_patches(patches: Patches) -> Iterator[Finding]:
    """A series that is shipped for this vLLM is applied to it, as it is now."""
    if patches.state in ("applied", "no vllm") or (
        patches.state == "not applied" and not patches.series
    ):
        return
    given, allowed, fix = {
        "no series": (patches.reason, "a vLLM that vllm_av carries patches for", patches.fix),
        "not applied": (
            f"{len(patches.series)} patches for this vLLM are not applied",
            "the series applied",
            _APPLY,
        ),
        "outdated": ("an older series is applied", "the one that this vllm_av carries", _APPLY),
        "drifted": (
            f"{', '.join(patches.files)} changed after the series was applied",
            "files as the series left them",
            "put your edits aside, then run: vllm-av patch revert, vllm-av patch apply",
        ),
        "unknown": (
            patches.reason,
            "a patch status that can be read",
            patches.fix or "run: vllm-av patch status",
        ),
    }[patches.state]
    yield Finding("fault", patches.code or Code.ENV_PATCHES, given, allowed, fix)
