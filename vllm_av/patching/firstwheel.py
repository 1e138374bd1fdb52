"""The first wheel of a vLLM that has no series yet: fetched or at hand, and then pinned.

Rule: what is pinned lies in the cache under the pinned name, so that the next command finds it.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from vllm_av.cache import cache_dir
from vllm_av.errors import Code, PatchError
from vllm_av.patching.files import locked, make_folder, remove_folder
from vllm_av.patching.tree import wheel_source
from vllm_av.patching.wheels import RULES, WAIT_SECONDS, Pin, bad_cache, download, sha256_of


def pin_text(pin: Pin) -> str:
    """What stands in ``wheel.toml``."""
    return (
        "# The pristine wheel that `vllm-av patch verify --all` checks this series against.\n"
        f'distribution = "{pin.distribution}"\n'
        f'version = "{pin.version}"\n'
        f'file = "{pin.file}"\n'
        f'sha256 = "{pin.sha256}"\n'
    )


def wheel_at_hand(file: Path, version: str) -> Pin:
    """Pin a file of the user's, and keep it in the cache.

    Raises:
        PatchError: AV-PATCH-NO-VLLM, AV-PATCH-WHEEL; see :func:`_pinned`.
        SetupError: AV-CACHE-DIR.
    """
    pin = _pinned(file, version)
    try:
        folder = _wheels()
        with locked(folder, WAIT_SECONDS):
            _keep(file, folder / pin.file)
    except OSError as error:
        raise bad_cache(file, error) from error
    return pin


def wheel_fetched(
    version: str, distribution: str, like: Pin, say: Callable[[str], None] = lambda line: None
) -> Pin:
    """Let pip fetch a version, for the machine that ``like`` is for or else for this one.

    Raises:
        PatchError: AV-PATCH-WHEEL, where it cannot be had; AV-PATCH-BUSY.
        SetupError: AV-CACHE-DIR.
    """
    wanted = f"{distribution}=={version}"
    try:
        folder = _wheels()
        with locked(folder, WAIT_SECONDS):
            part = folder / f"{distribution}-{version}.part"
            remove_folder(part)  # what a command that was killed left
            make_folder(part)
            try:
                say(f"fetching {wanted}, once, into {folder}")
                done = download(wanted, like.tags, part)
                if done.failed and not done.unheard:
                    done = download(wanted, [], part)
                brought = sorted(part.glob("*.whl"))
                if done.failed or not brought:
                    raise _not_to_be_had(wanted, done.reason)
                pin = _pinned(brought[0], version)
                os.replace(brought[0], folder / pin.file)
            finally:
                remove_folder(part)
    except OSError as error:
        raise bad_cache(folder, error) from error
    return pin


def _wheels() -> Path:
    folder = cache_dir() / "wheels"
    folder.mkdir(exist_ok=True)
    return folder


def _pinned(file: Path, version: str) -> Pin:
    """Which wheel a file is.

    Raises:
        PatchError: AV-PATCH-NO-VLLM, where it is no wheel of vLLM; AV-PATCH-WHEEL, where it is of
            another version, or bears another name.
    """
    source = wheel_source(file)
    if source.version != version:
        raise PatchError(
            Code.PATCH_WHEEL,
            f"{file} is {source.dist} {source.version}",
            f"a wheel of vLLM {version}",
            f"name that one, or ask for {source.version}",
        )
    start = f"{source.dist.replace('-', '_')}-{version}-"
    if not RULES["file"].fullmatch(file.name) or not file.name.startswith(start):
        raise PatchError(
            Code.PATCH_WHEEL,
            f"{file} has a name that no index gave it",
            f"{start}PYTHON-ABI-PLATFORM.whl, by which pip can fetch it again",
            "give it the name that it was published under",
        )
    return Pin(source.dist, version, file.name, sha256_of(file))


def _keep(file: Path, place: Path) -> None:
    if place.exists() and (file.samefile(place) or sha256_of(file) == sha256_of(place)):
        return
    fresh = place.with_name(f"{place.name}.new")
    fresh.unlink(missing_ok=True)
    shutil.copyfile(file, fresh)
    os.replace(fresh, place)


def _not_to_be_had(wanted: str, why: str) -> PatchError:
    return PatchError(
        Code.PATCH_WHEEL,
        f"the wheel of {wanted.replace('==', ' ')} cannot be fetched ({why})",
        "a release that pip's index serves as a wheel",
        "let pip reach such an index, or name a wheel that is at hand with --wheel",
    )
