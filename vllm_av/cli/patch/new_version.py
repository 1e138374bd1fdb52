"""``vllm-av patch new-version``: the newest series, carried over to another vLLM."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_av.cli.output import EXIT_NO, emit, mistakes
from vllm_av.cli.patch.options import Json, count
from vllm_av.patching.newversion import Started, start
from vllm_av.patching.series import series_root
from vllm_av.patching.tree import NAMES


def new_version(
    version: Annotated[str, typer.Argument(help="X.Y.Z, the vLLM to make a series for.")],
    base: Annotated[
        str | None,
        typer.Option(
            "--from", help="The series to start from. Without it: the newest below VERSION."
        ),
    ] = None,
    wheel: Annotated[
        Path | None,
        typer.Option(
            help="The wheel of VERSION. Without it: pip fetches it.", exists=True, dir_okay=False
        ),
    ] = None,
    distribution: Annotated[
        str, typer.Option(help=f"What pip fetches: {' or '.join(NAMES)}.")
    ] = NAMES[0],
    to: Annotated[
        Path | None,
        typer.Option(help="Folder to make it in. Without it: beside the others.", file_okay=False),
    ] = None,
    go_on: Annotated[
        bool,
        typer.Option(
            "--continue", help="Go on with a series that is there: try what it lacks again."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Start the series for a new vLLM. Exit code 0: it is whole; 1: there is something to mend."""
    if distribution not in NAMES:
        raise typer.BadParameter(f"--distribution is {' or '.join(NAMES)}")

    def say(line: str) -> None:
        if not as_json:
            typer.echo(line, err=True)

    from vllm_av.seams.contract import missing  # needs more than the other verbs do

    with mistakes(as_json=as_json):
        found = start(
            version,
            series_root(),
            base=base,
            wheel=wheel,
            distribution=distribution,
            to=to,
            go_on=go_on,
            seams=missing,
            say=say,
        )
    emit(found.as_dict(), as_json=as_json, text=lambda: _tell(found))
    if not found.clean:
        raise typer.Exit(EXIT_NO)


def _tell(found: Started) -> None:
    for note in found.notes:
        typer.echo(f"note: {note}")
    for name in found.taken:
        typer.echo(f"taken: vLLM {found.version} has {name}")
    for one in found.conflicts:
        for place in one["places"]:
            inside = f" in {place['function']}" if place["function"] else ""
            typer.echo(f"conflict: {one['patch']}: {place['file']}{inside}: {place['why']}")
    for name, others in found.waiting.items():
        typer.echo(f"waits: {name}, for {', '.join(others)}")
    for name, lines in found.looks.items():
        for line in lines:
            typer.echo(f"look: {name}: {line}")
    for problem in found.problems:
        typer.echo(f"problem: {problem}")
    left = [
        count(found.conflicts, "conflict"),
        f"{len(found.waiting)} waiting",
        f"{len(found.looks)} to look at",
    ]
    typer.echo(
        f"{count(found.carried, 'patch', 'patches')} of {found.base} on vLLM {found.version}, "
        f"{', '.join(left)}; written to {found.folder}"
    )
    if not found.clean:
        typer.echo('patches/README.md, "A new vLLM", says how to go on')
