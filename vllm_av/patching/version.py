"""The order of vLLM's versions.

Rule: a series is for a release, ``X.Y.Z`` with ``rcN`` or ``.postN`` perhaps; what else a folder is
called comes by its numbers.
"""

import re

from vllm_av.errors import Code, PatchError

_NUMBER = r"(0|[1-9][0-9]{0,5})"  # no zeros in front, and no digits but ASCII's
_RELEASE = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:(rc|\.post){_NUMBER})?")
_PHASES = {"rc": -1, None: 0, ".post": 1}


def key_of(version: str) -> tuple[int, ...]:
    """Sorts versions, older first."""
    if found := _RELEASE.fullmatch(version):
        numbers = (int(number) for number in found.groups()[:3])
        return (*numbers, _PHASES[found[4]], int(found[5] or 0))
    return tuple(int(number) for number in re.findall(r"[0-9]+", version))


def is_release(version: str) -> bool:
    """Is it the name of a release, candidates among them?"""
    return _RELEASE.fullmatch(version) is not None


def refuse_no_version(version: str) -> None:
    """Raise where it is no release.

    Raises:
        PatchError: AV-PATCH-VERSION.
    """
    if not is_release(version):
        raise PatchError(
            Code.PATCH_VERSION,
            f"{version!r} is no version of vLLM",
            "X.Y.Z, with rcN or .postN perhaps",
            "name a release, without the v of its tag",
        )
