"""Whether the patch series for the installed vLLM is applied, asked of :mod:`vllm_av.patching`."""

from collections.abc import Iterator
from dataclasses import dataclass

from vllm_av.doctor.findings import Finding
from vllm_av.errors import Code, VllmAvError

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Patches:
    """The patch status of the installed vLLM.

    Args:
        state: a value of :class:`vllm_av.patching.status.State`, or ``unknown``.
        line: what it is and what to do, for people.
        code: why it is unknown.
        patches: names of the patches that are in.
        files: files that the series changed or, if drifted, that somebody edited.
    """

    state: str
    line: str
    code: Code | None = None
    patches: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


def read_patches() -> Patches:
    """Look at the vLLM of this environment; never raises, and never imports vLLM."""
    try:
        from vllm_av.patching.status import status

        found = status()
    except ImportError as error:
        return Patches(UNKNOWN, f"the patch tool cannot be loaded ({error})", Code.VERB_IMPORT)
    except VllmAvError as error:
        return Patches(UNKNOWN, f"{error.given}; {error.fix}", error.code)
    except Exception as error:  # a spoilt tree is to be reported, whatever it breaks
        return Patches(UNKNOWN, f"the installed vLLM cannot be read ({error})", Code.PATCH_STATE)
    return Patches(found.state.value, found.line, None, found.patches, found.files)


def find_patches(patches: Patches) -> Iterator[Finding]:
    """The series that this vllm_av carries is applied to the installed vLLM, and unedited."""
    # A missing vLLM is reported by itself.
    if patches.state in ("applied", "missing"):
        return
    if patches.state == "unsupported":
        yield Finding(
            # It runs as released; nothing here is broken.
            "advice",
            Code.PATCH_NO_SERIES,
            patches.line,
            "a vLLM version that this vllm_av has patches for",
            "install one of those, or leave this vLLM unpatched",
        )
        return
    # The line of the patch tool says what it found, then what to do.
    found, _, todo = patches.line.partition("; ")
    yield Finding(
        # Another text of the series can be somebody's choice, and may work.
        "advice" if patches.state == "outdated" else "fault",
        patches.code or Code.ENV_PATCHES,
        found,
        "the series of this vllm_av, applied and unedited",
        todo or "see `vllm-av patch status`",
    )


def served() -> tuple[str, ...]:
    """The vLLM versions that this vllm_av has a series for; none where that cannot be read."""
    try:
        from vllm_av.patching.series import series_root, versions

        return tuple(versions(series_root()))
    except (ImportError, OSError, VllmAvError):
        return ()
