"""``vllm-av patch export``: the series written again."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from vllm_av.cli.output import emit, mistakes
from vllm_av.cli.patch.options import Json, Site, count
from vllm_av.patching.export import export as export_series
from vllm_av.patching.mail import read_message
from vllm_av.patching.series import read_series, series_root
from vllm_av.patching.tree import find_tree
from vllm_av.patching.verify import source_at, tree_source


def export(
    to: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write to. Without it: where the series lies.", file_okay=False
        ),
    ] = None,
    patch: Annotated[
        str | None,
        typer.Option(
            help="group/name.patch that takes the edits. Without it: the last one that "
            "touches the edited file."
        ),
    ] = None,
    new: Annotated[
        str | None,
        typer.Option(help="group/name.patch to make of the edits, last of its group."),
    ] = None,
    message: Annotated[
        Path | None,
        typer.Option(
            help="With --new: a file with title, body and trailers.", exists=True, dir_okay=False
        ),
    ] = None,
    pristine: Annotated[
        Path | None,
        typer.Option(
            help="The same vLLM unedited, a wheel or a folder as for --site: wanted for "
            "files that no patch touched before.",
            exists=True,
        ),
    ] = None,
    site: Site = None,
    as_json: Json = False,
) -> None:
    """Write the series again, with what was edited in the patched vLLM."""
    if bool(new) != bool(message) or (new and patch):
        raise typer.BadParameter("--new and --message belong together, and exclude --patch")
    with mistakes(as_json=as_json):
        tree = find_tree(site)
        series = read_series(series_root(), tree.version)
        outcome = export_series(
            tree,
            source_at(pristine) if pristine else tree_source(tree),
            series,
            to,
            into=patch,
            new=(new, read_message(message)) if new and message else None,
            date=datetime.now(UTC).replace(microsecond=0),
        )

    def text() -> None:
        for name in outcome.written:
            typer.echo(f"wrote {name}")
        for note in outcome.notes:
            typer.echo(f"note: verify will say: {note}")
        counts = f"{count(outcome.edited, 'edited file')}, {count(outcome.written, 'file')}"
        typer.echo(f"{counts} written to {outcome.folder}")

    emit(outcome.as_dict(), as_json=as_json, text=text)
