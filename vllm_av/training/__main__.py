"""``python -m vllm_av.training STAGE [--work FOLDER]``: one stage of making the drafters.

Rule: a stage is a module of this room with ``run(work)``, imported only when it is asked for; it
does nothing where what it makes is whole, and goes on where it was killed.
"""

import argparse
from importlib import import_module
from pathlib import Path

STAGES = {
    "corpus": "what the target answers to the training prompts",
    "features": "the target's hidden states over the corpus",
    "eagle": "the EAGLE head",
    "eagle3": "the EAGLE-3 head",
}
"""Module of each stage, and what it makes; in the order that they need one another."""


def main() -> None:
    """Run the stage that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m vllm_av.training")
    parser.add_argument("--work", type=Path, default=Path("build/drafters"), help="folder")
    stages = parser.add_subparsers(dest="stage", required=True)
    for name, text in STAGES.items():
        stages.add_parser(name, help=text)
    figures = stages.add_parser("measure", help="acceptance in the real engine")
    figures.add_argument("name", help="as `vllm-av demo --drafter` takes it")
    figures.add_argument("--checkpoint", type=Path, help="folder; the package's own by default")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.stage == "measure":
        from vllm_av.training.measure import run

        run(options.work, options.name, options.checkpoint)
    else:
        import_module(f"vllm_av.training.{options.stage}").run(options.work)


if __name__ == "__main__":
    main()
