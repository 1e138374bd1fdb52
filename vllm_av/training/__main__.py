"""``python -m vllm_av.training [--work FOLDER] STAGE``: makes the drafters, or one of them.

``measure NAME`` gives a drafter's acceptance in the real engine, ``install`` takes what was trained
over into the package.

Rule: a stage is a module of this room with ``run(work)``, imported only when it is wanted; it does
nothing where what it makes is whole, and goes on where it was killed.
"""

import argparse
import shutil
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from pathlib import Path

from vllm_av.demo.drafter import DRAFTERS, find
from vllm_av.errors import Code, TrainingError, VllmAvError
from vllm_av.training.processes import alone
from vllm_av.training.whole import written


@dataclass(frozen=True)
class Stage:
    """What a module of this room makes.

    Args:
        text: for a reader.
        needs: stages whose work it reads.
    """

    text: str
    needs: tuple[str, ...] = ()


STAGES = {
    "corpus": Stage("what the target answers to the training prompts"),
    "features": Stage("the target's hidden states over the corpus", ("corpus",)),
    "eagle": Stage("the EAGLE head", ("features",)),
    "eagle3": Stage("the EAGLE-3 head", ("features",)),
    "dflash": Stage("the DFlash drafter", ("features",)),
    "dspark": Stage("the DSpark drafter, from DFlash's weights", ("dflash",)),
    "mtp": Stage("a small target with its MTP layer"),
    "draft_model": Stage("the small draft model", ("features",)),
}
"""By module."""

_FILES = ("config.json", "model.safetensors", "training.json")


def make(stage: str, work: Path) -> None:
    """Run ``stage`` after all that it needs."""
    for needed in STAGES[stage].needs:
        make(needed, work)
    with alone(work, stage):
        import_module(f"vllm_av.training.{stage}").run(work)


def install(name: str, work: Path) -> None:
    """Copy what was trained of the drafter ``name`` into the package's data.

    Raises:
        TrainingError: ``AV-TRAINING-NOTHING`` if it is not whole.
    """
    folder = find(name).folder
    if not (work / folder / "training.json").exists():
        raise TrainingError(
            Code.TRAINING_NOTHING,
            given=f"{work / folder} has no training.json, so {name} is not trained to its end",
            allowed="a drafter that is whole",
            fix=f"train it first (one of {', '.join(STAGES)}), with the same --work",
        )
    carried = Path(str(files("vllm_av").joinpath("data", folder)))
    carried.mkdir(parents=True, exist_ok=True)
    for file in sorted((work / folder).iterdir()):
        if file.name in _FILES or (
            file.name.startswith("tokenizer") and file.suffix in (".json", ".jinja")
        ):
            with written(carried / file.name) as path:
                shutil.copyfile(file, path)


def main() -> None:
    """Do what the command line says; a mistake is one line and status 2."""
    try:
        _main()
    except VllmAvError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m vllm_av.training")
    parser.add_argument("--work", type=Path, default=Path("build/drafters"), help="folder")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("all", help="every drafter")
    for name, stage in STAGES.items():
        verbs.add_parser(name, help=stage.text)
    measured = verbs.add_parser("measure", help="acceptance in the real engine")
    measured.add_argument("name", choices=DRAFTERS)
    measured.add_argument("--checkpoint", type=Path, help="folder; the package's own by default")
    verbs.add_parser("install", help="take it over into the package").add_argument(
        "name", choices=DRAFTERS
    )
    options = parser.parse_args()
    work: Path = options.work
    try:
        work.mkdir(parents=True, exist_ok=True)
        (work / ".written").touch()
        (work / ".written").unlink()
    except OSError as error:
        raise TrainingError(
            Code.TRAINING_WRITE,
            given=f"{work}: {error.strerror}",
            allowed="a folder that can be written",
            fix="give one with --work FOLDER, before the stage",
        ) from None
    if options.verb == "measure":
        from vllm_av.training.measure import run

        run(work, options.name, options.checkpoint)
    elif options.verb == "install":
        install(options.name, work)
    else:
        for name in STAGES if options.verb == "all" else [options.verb]:
            make(name, work)


if __name__ == "__main__":
    main()
