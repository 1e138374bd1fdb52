"""``python -m vllm_av.training STAGE [--work FOLDER]``: makes the drafters, or one of them.

``measure NAME`` gives a drafter's acceptance in the real engine, ``install`` takes what was trained
over into the package.

Rule: a stage is a module of this package with ``run(work)``, imported only when it is wanted; it
does nothing where what it makes is whole, and goes on where it was killed.
"""

import argparse
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from vllm_av.demo.drafter import DRAFTERS
from vllm_av.errors import Code, TrainingError, VllmAvError
from vllm_av.training.install import install
from vllm_av.training.processes import alone
from vllm_av.training.whole import unwritable

_EXIT_MISTAKE = 2
_EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class Stage:
    """What a module of this package makes.

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
    "draft-model": Stage("the small draft model", ("features",)),
}
"""By name, in which the module has ``_`` for each ``-``."""


def make(stage: str, work: Path) -> None:
    """Run ``stage`` after all that it needs."""
    for needed in STAGES[stage].needs:
        make(needed, work)
    module = stage.replace("-", "_")
    with alone(work, module):
        import_module(f"vllm_av.training.{module}").run(work)


class _Parser(argparse.ArgumentParser):
    """One whose mistakes are told as all others are."""

    def error(self, message: str) -> NoReturn:
        raise TrainingError(
            Code.USAGE,
            given=message,
            allowed="[--work FOLDER] and a stage, measure or install",
            fix=f"see {self.prog} --help",
        )


def main() -> None:
    """Do what the command line says; a mistake is one line and status 2, Ctrl-C status 130."""
    try:
        _main()
    except VllmAvError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(_EXIT_MISTAKE) from None
    except KeyboardInterrupt:
        raise SystemExit(_EXIT_INTERRUPTED) from None


def _main() -> None:
    options = _parser().parse_args()
    work: Path = options.work
    if options.verb == "install":
        install(options.name, work)
        return
    _require_writable(work)
    if options.verb == "measure":
        from vllm_av.training.measure import run

        run(work, options.name, options.checkpoint)
        return
    for name in STAGES if options.verb == "all" else [options.verb]:
        make(name, work)


def _parser() -> _Parser:
    parser = _Parser(prog="python -m vllm_av.training")
    parser.add_argument("--work", type=_folder, default=Path("build/drafters"), help="folder")
    # After the verb it has no default, which would take the place of what stands before.
    after = _Parser(add_help=False)
    after.add_argument("--work", type=_folder, default=argparse.SUPPRESS, help="folder")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("all", help="every drafter", parents=[after])
    for name, stage in STAGES.items():
        verbs.add_parser(name, help=stage.text, parents=[after])
    measured = verbs.add_parser("measure", help="acceptance in the real engine", parents=[after])
    measured.add_argument("name", choices=DRAFTERS)
    measured.add_argument("--checkpoint", type=_folder, help="folder; the package's own by default")
    installed = verbs.add_parser("install", help="take it over into the package", parents=[after])
    installed.add_argument("name", choices=DRAFTERS)
    return parser


def _folder(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty, and not the name of a folder")
    return Path(text)


def _require_writable(work: Path) -> None:
    try:
        work.mkdir(parents=True, exist_ok=True)
        (work / ".written").touch()
        (work / ".written").unlink()
    except OSError as error:
        raise unwritable(work, error) from None


if __name__ == "__main__":
    main()
