"""``vllm-av config``: what can be set, is this config right, and what is then in force."""

import json
from typing import Annotated

import typer

from vllm_av.cli.output import EXIT_NO, emit, mistakes
from vllm_av.config.block import MOST
from vllm_av.config.model import AdaptiveVerificationConfig
from vllm_av.config.text import named, printable, read_file
from vllm_av.config.whole import Document, argument, examine
from vllm_av.scorers.registry import AUTO, OURS, sources

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="The block adaptive_verification_config of a --speculative-config.",
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Answer with one JSON object.")]
_NOT_CHECKED = "of vLLM's own keys, only those that decide about the block were checked"
_FILE = "JSON: a whole --speculative-config or the block alone; - is standard input."


@app.command()
def schema(as_json: Json = False) -> None:
    """Print the JSON schema of the block: keys, meanings, units, ranges, defaults."""
    answer = AdaptiveVerificationConfig.model_json_schema()
    emit(answer, as_json=as_json, text=lambda: typer.echo(json.dumps(answer, indent=2)))


@app.command()
def validate(
    file: Annotated[str, typer.Argument(metavar="FILE", help=_FILE)],
    as_json: Json = False,
) -> None:
    """Is this config right? Names every mistake; exit 0 yes, 1 no, 2 no JSON."""
    with mistakes(as_json=as_json):
        found = examine(read_file(file))
        notes = _notes(found)
    valid = not found.errors
    answer = {
        "valid": valid,
        "took": found.took,
        "enabled": found.enabled,
        "block": found.block() if valid else None,
        "errors": [error.as_dict() for error in found.errors],
        "notes": notes,
    }

    def text() -> None:
        for error in found.errors:
            typer.echo(f"error: {error}")
        for each in notes:
            typer.echo(f"note: {each}")
        typer.echo(f"{named(file)}, taken for {found.took}: {_judgement(found)}")

    emit(answer, as_json=as_json, text=text)
    if not valid:
        raise typer.Exit(EXIT_NO)


@app.command()
def render(
    file: Annotated[str | None, typer.Argument(metavar="[FILE]", help=_FILE)] = None,
    as_json: Json = False,
) -> None:
    """Print the block with every default filled in, and the argument for a shell."""
    with mistakes(as_json=as_json):
        found = examine({} if file is None else read_file(file))
        block, whole = found.block(), found.filled()
    answer = {
        "took": found.took,
        "block": block,
        "speculative_config": whole,
        "argument": argument(whole),
    }

    def text() -> None:
        if block is None:
            typer.echo("adaptive verification is off: enable_adaptive_verification is not true")
        else:
            typer.echo(json.dumps(block, indent=2))
        typer.echo()
        typer.echo(argument(whole))
        if found.whole is None:
            typer.echo()
            typer.echo("The drafter goes beside it: --spec-method, --spec-model, --spec-tokens.")

    emit(answer, as_json=as_json, text=text)


def _notes(found: Document) -> list[str]:
    """What is not known before vLLM starts."""
    config = found.verdict.config if found.verdict else None
    if config is None or config.scorer == AUTO:
        return []
    name = printable(config.scorer)
    if any(source.name == config.scorer and source.origin == OURS for source in sources()):
        return []
    note = (
        f"the scorer {name} is of another package: it is imported and checked when vLLM starts; "
        f"`vllm-av scorers {name}` shows it"
    )
    return [note]


def _judgement(found: Document) -> str:
    count = len(found.errors)
    if count > MOST:
        return f"more than {MOST} mistakes"
    if count:
        return f"{count} mistake{'' if count == 1 else 's'}"
    if found.whole is None:
        return "valid"
    if not found.enabled:
        words = "valid, and adaptive verification is off"
    else:
        words = "valid" if found.verdict else "valid, without the block: every default is in force"
    return f"{words}; {_NOT_CHECKED}"
