"""``vllm-av scorers``: which there are, what each needs, and what ``auto`` takes for a drafter."""

from typing import Annotated

import typer

from vllm_av.cli.output import emit, mistakes
from vllm_av.doctor.settings import plain
from vllm_av.scorers.by_drafter import by_drafter, lines
from vllm_av.scorers.listing import Choice, Entry, choices, entries

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def scorers(
    name: Annotated[
        str | None, typer.Argument(help="Import this one and say what it says about itself.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the scorers; those of other packages are imported only when they are named."""
    with mistakes(as_json=as_json):
        listed = entries(name)
        auto = choices()
        answer = {
            "scorers": [entry.as_dict() for entry in listed],
            "auto": [choice.as_dict() for choice in auto],
            "drafters": [row.as_dict() for row in by_drafter()],
        }
        emit(answer, as_json=as_json, text=lambda: _print(listed, auto))


def _print(listed: list[Entry], auto: list[Choice]) -> None:
    for entry in listed:
        typer.echo(plain(f"{entry.name}  (from {entry.origin})"))
        for line in entry.lines():
            typer.echo(plain(f"  {line}"))
    typer.echo("\nauto")
    for choice in auto:
        typer.echo(f"  {choice.line()}")
    typer.echo("")
    for line in lines():
        typer.echo(line)
