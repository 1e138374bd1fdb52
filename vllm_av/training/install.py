"""Takes a drafter that was trained over into the package's data.

Rule: none of its files is renamed before all are written, and the weights are the last; a drafter
that is not whole leaves the package as it is.
"""

import shutil
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from vllm_av.demo.contents import CONFIG, WEIGHTS
from vllm_av.demo.drafter import Drafter, find
from vllm_av.errors import Code, DemoError, TrainingError
from vllm_av.training.finished import TOKENIZER, check
from vllm_av.training.reading import json_of
from vllm_av.training.whole import all_written, unwritable

_TRAINING = "training.json"


def install(name: str, work: Path) -> None:
    """Copy what was trained of the drafter ``name`` into the package's data.

    Raises:
        TrainingError: ``AV-TRAINING-NOTHING`` if it is not whole, ``AV-TRAINING-WRITE`` if the
            package cannot be written.
    """
    drafter = find(name)
    made = work / drafter.folder
    _require_whole(drafter, work)
    names = [CONFIG, _TRAINING, *(TOKENIZER if drafter.own_target else ()), WEIGHTS]
    package = Path(str(files("vllm_av")))
    carried = package / "data" / drafter.folder
    is_new = not carried.exists()
    try:
        carried.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(carried, error) from error
    try:
        with all_written(*(carried / each for each in names)) as parts:
            for each, part in zip(names, parts, strict=True):
                shutil.copyfile(made / each, part)
    except TrainingError:
        if is_new:
            with suppress(OSError):  # some of it has got its name
                carried.rmdir()
        raise
    print(f"wrote {', '.join(names)} of {name} into {carried}{_to_write(package, drafter, work)}")


def stage_of(drafter: Drafter) -> str:
    """The stage that makes it."""
    return drafter.method.replace("_", "-")


def _require_whole(drafter: Drafter, work: Path) -> None:
    made = work / drafter.folder
    again = f"python -m vllm_av.training {stage_of(drafter)} --work {work}"
    try:
        if not (made / _TRAINING).exists():
            raise _nothing(
                f"{made} has no {_TRAINING}, so {drafter.name} is not trained to its end",
                f"train it first: {again}",
            )
        if not isinstance(json_of(made / _TRAINING, dict).get("digest"), str):
            raise _nothing(f"{made / _TRAINING} has no digest", f"delete it and run: {again}")
        check(drafter, made)
    except (DemoError, TrainingError) as error:
        if error.code is Code.TRAINING_NOTHING:
            raise
        fix = f"delete {made / _TRAINING}, the mark that it is whole, and run: {again}"
        raise _nothing(error.given, fix) from error


def _nothing(given: str, fix: str) -> TrainingError:
    return TrainingError(
        Code.TRAINING_NOTHING, given=given, allowed="a drafter that is whole", fix=fix
    )


def _to_write(package: Path, drafter: Drafter, work: Path) -> str:
    """What is to be written next, in a checkout: one paper for all that a stage makes."""
    if not (package.parent / "ci" / "provenance.py").is_file():
        return ""
    paper = f"python -m ci.provenance {stage_of(drafter)} --minutes M --work {work}"
    return (
        f"; now write its PROVENANCE.md ({paper}) and the README's table (python -m ci.acceptance)"
    )
