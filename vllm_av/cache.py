"""Where the package keeps what it can make again: compiled kernels, converted checkpoints.

Rule: everything under this folder may be deleted at any time; nothing outside it is written.
"""

import os
from pathlib import Path

from vllm_av.errors import Code, SetupError


def cache_dir() -> Path:
    """The package's cache folder, made if it is missing.

    ``$AV_CACHE``, else ``$XDG_CACHE_HOME/vllm_av``, else ``~/.cache/vllm_av``. An empty
    variable counts as unset, as the XDG base directory specification asks; so does a relative
    ``XDG_CACHE_HOME``.

    Raises:
        SetupError: ``AV-CACHE-DIR`` if the folder cannot be made or written to.
    """
    path = cache_place()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unusable(path, error.strerror or str(error)) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise unusable(path, "not writable")
    return path


def cache_place() -> Path:
    """Where the folder is or would be; nothing is made.

    Raises:
        SetupError: ``AV-CACHE-DIR`` where ``AV_CACHE`` names nobody's home, or where there are
            neither variables nor a home.
    """
    own = os.environ.get("AV_CACHE")
    if own:
        try:
            return Path(own).expanduser().absolute()
        except RuntimeError as error:  # no such user
            raise unusable(Path(own), str(error)) from error
    xdg = os.environ.get("XDG_CACHE_HOME")
    if xdg and os.path.isabs(xdg):
        return Path(xdg) / "vllm_av"
    try:
        return Path.home() / ".cache/vllm_av"
    except RuntimeError as error:  # no HOME, and a user without an entry
        raise unusable(Path("~/.cache/vllm_av"), str(error)) from error


def unusable(path: Path, reason: str) -> SetupError:
    """``AV-CACHE-DIR``: what lies at ``path`` cannot be read or written, for this ``reason``."""
    return SetupError(
        Code.CACHE_DIR,
        given=f"the cache folder {path} cannot be used ({reason})",
        allowed="a folder that this user can create and write",
        fix="set AV_CACHE to such a folder",
    )
