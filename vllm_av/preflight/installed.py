"""Which vLLM is asked about: the installed one, or the version that the user names.

Rule: nothing of vllm is imported; whether it is patched is what ``vllm-av patch status`` says.
"""

import re
from dataclasses import dataclass

from vllm_av.drafters import SUPPORTED
from vllm_av.errors import CheckError, Code, VllmAvError

_TAG = re.compile(r"vllm-openai[\w.-]*:v?(\d+(?:\.\d+)+\w*)(?:-[\w.-]*)?(?:@.*)?$")
_OFFICIAL = re.compile(r"(docker\.io/)?vllm/vllm-openai")
_OURS = re.compile(r"(?:[^\s/]+/)*vllm-openai-av(-cpu)?:")
"""As ``ci/Dockerfile`` is to be called when it is built."""
_NOTHING = ("pristine", "edited", "stale", "unsupported")
"""States of a vLLM in which no patch is."""


@dataclass(frozen=True)
class Installed:
    """A vLLM.

    Args:
        version: without what stands after a plus sign.
        patched: whether the series of this package is in it; of a named version it is taken for
            granted.
        here: whether it is this interpreter's.
        known: what is known of it, for people.
        sure: whether it is known at all; else it is taken for this version.
    """

    version: str
    patched: bool
    here: bool
    known: str
    sure: bool = True


def installed(named: str | None = None) -> Installed:
    """The vLLM of this environment, or the one of that version.

    Raises:
        CheckError: ``AV-QUESTION-FLAG``: no such version is supported.
    """
    if named is not None and named not in SUPPORTED:
        # It needs pydantic, and the doctor, which uses this module, works without.
        from vllm_av.config.text import shown

        raise CheckError(
            Code.QUESTION_FLAG,
            given=f"--vllm-version is {shown(named)}",
            allowed=f"one of {', '.join(SUPPORTED)}",
            fix="correct it, or leave it out for the installed vLLM",
        )
    version, state = _look()
    if named is not None and named != version:
        return Installed(named, True, False, f"vLLM {named}, taken for patched")
    if version is None:
        newest = SUPPORTED[-1]
        return Installed(newest, True, False, f"no vLLM here; vLLM {newest}, taken for patched")
    patched = is_patched(state)
    words = "patched" if patched else "not patched" if state in _NOTHING else f"patches {state}"
    return Installed(version, patched, True, f"vLLM {version} here, {words}")


def in_image(image: str | None) -> Installed:
    """The vLLM in a container's image, by its tag.

    Args:
        image: of vLLM's name, None for any other.
    """
    tag = _TAG.search(image or "")
    ours = _OURS.match(image or "") is not None
    official = not ours and _OFFICIAL.match(image or "") is not None
    version = tag[1] if tag else SUPPORTED[-1]
    patched = "not patched" if official else "patched" if ours else "taken for patched"
    known = f"vLLM {version} of the image" if tag else f"the image's, taken for vLLM {version}"
    sure = bool(tag and (official or ours))
    return Installed(version, not official, False, f"{known}, {patched}", sure)


def is_patched(state: str) -> bool:
    """Whether the whole series of this package is in a vLLM of which that is said.

    Args:
        state: a value of :class:`vllm_av.patching.status.State`, or another word. Of ``outdated``
            nobody knows which seams are in it.
    """
    return state in ("applied", "damaged", "unrecorded")


def _look() -> tuple[str | None, str]:
    try:
        from vllm_av.patching.status import status

        found = status()
    except (ImportError, VllmAvError, OSError):
        return None, "unknown"
    version = found.version.partition("+")[0] if found.version else None
    return version, found.state.value
