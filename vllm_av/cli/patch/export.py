"""``vllm-av patch export``: the series written again, or as mails for vLLM."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from vllm_av.cli.output import emit, mistakes
from vllm_av.cli.patch.options import Json, Site, count
from vllm_av.patching.export import export as export_series
from vllm_av.patching.mail import read_message
from vllm_av.patching.series import read_series, series_folder, series_root
from vllm_av.patching.tree import find_tree, wheel_source
from vllm_av.patching.upstream_export import UNSIGNED, newest, stage
from vllm_av.patching.verify import source_at, tree_source
from vllm_av.patching.wheels import pinned_wheel


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
            "touches the edited file. With --upstream: the one to export, with those it needs."
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
            "files that no patch touched before. With --upstream: instead of the pinned wheel.",
            exists=True,
        ),
    ] = None,
    upstream: Annotated[
        Path | None,
        typer.Option(help="Folder for mails to vLLM, one a patch, with their tests; unsigned."),
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(help="With --upstream: the series to export. Without it: the newest."),
    ] = None,
    site: Site = None,
    as_json: Json = False,
) -> None:
    """Write the series again, with what was edited in the patched vLLM; or mails for vLLM."""
    if upstream:
        if to or new or message or site:
            raise typer.BadParameter("--upstream excludes --to, --new, --message and --site")
        _mails(upstream, version, patch, pristine, as_json=as_json)
        return
    if version:
        raise typer.BadParameter("--version belongs to --upstream")
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


def _mails(
    to: Path, version: str | None, only: str | None, pristine: Path | None, *, as_json: bool
) -> None:
    def say(line: str) -> None:
        if not as_json:
            typer.echo(line, err=True)

    with mistakes(as_json=as_json):
        root = series_root()
        version = series_folder(root, version).name if version else newest(root)
        source = source_at(pristine) if pristine else wheel_source(pinned_wheel(version, root, say))
        outcome = stage(root, source, to, version, only)

    def text() -> None:
        for mail in outcome.mails:
            needs = f"  after {', '.join(need[:4] for need in mail.needs)}" if mail.needs else ""
            typer.echo(f"{mail.file}  {mail.title}{needs}")
        counts = f"{count(outcome.mails, 'mail')}, {count(outcome.written, 'file')} written"
        typer.echo(f"{counts} to {outcome.folder}, for vLLM {outcome.version}")
        typer.echo(UNSIGNED)

    emit(outcome.as_dict(), as_json=as_json, text=text)
