"""``vllm-av patch``: the series and the installed vLLM."""

from collections.abc import Sized
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from vllm_av.cli.output import EXIT_NO, emit, mistakes
from vllm_av.patching.export import export as export_series
from vllm_av.patching.install import Outcome, select
from vllm_av.patching.install import apply as apply_series
from vllm_av.patching.install import revert as revert_series
from vllm_av.patching.mail import read_message
from vllm_av.patching.series import read_series, series_root
from vllm_av.patching.status import State
from vllm_av.patching.status import status as status_of
from vllm_av.patching.tree import find_tree
from vllm_av.patching.verify import source_at, tree_source, verify_all
from vllm_av.patching.verify import verify as verify_series

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="The patch series, and the vLLM that it is for.",
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Answer with one JSON object.")]
Site = Annotated[
    Path | None,
    typer.Option(
        help="Another vLLM: a site-packages folder, an environment, an unpacked wheel, or an "
        "image's root. Without it: this interpreter's.",
        exists=True,
        file_okay=False,
    ),
]


@app.command()
def verify(
    site: Site = None,
    wheel: Annotated[
        Path | None,
        typer.Option(help="A wheel of vLLM to check against.", exists=True, dir_okay=False),
    ] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Every series, against the wheel that is pinned for it; pip fetches it once.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Is the series for this vLLM as it must be? Names every problem."""
    if (site is not None) + (wheel is not None) + every > 1:
        raise typer.BadParameter("--all, --site and --wheel exclude each other")

    def say(line: str) -> None:
        if not as_json:
            typer.echo(line, err=True)

    with mistakes(as_json=as_json):
        if every:
            reports = verify_all(series_root(), say)
        else:
            source = source_at(wheel) if wheel else tree_source(find_tree(site))
            reports = (verify_series(series_root(), source),)

    def text() -> None:
        for report in reports:
            for name, added in report.added.items():
                typer.echo(f"{name}  +{added}")
            for problem in report.problems:
                typer.echo(f"problem: {problem}")
            typer.echo(
                f"series {report.version} against the pristine files of {report.against}: "
                f"{_count(report.added, 'patch', 'patches')}, {_count(report.problems, 'problem')}"
            )

    answers = [report.as_dict() for report in reports]
    emit({"series": answers} if every else answers[0], as_json=as_json, text=text)
    if any(report.problems for report in reports):
        raise typer.Exit(EXIT_NO)


@app.command()
def apply(
    group: Annotated[
        list[str] | None,
        typer.Option(help="A group of the series; may be given twice. Without it: those that fit."),
    ] = None,
    site: Site = None,
    as_json: Json = False,
) -> None:
    """Apply the series to the installed vLLM: every patch, or none."""
    with mistakes(as_json=as_json):
        tree = find_tree(site)
        series = select(read_series(series_root(), tree.version), tree, group or ())
        outcome = apply_series(tree, series)
    _answer(outcome, f"{tree.dist} {tree.version} in {tree.site}", as_json=as_json)


@app.command()
def revert(site: Site = None, as_json: Json = False) -> None:
    """Give back every byte of the installed vLLM."""
    with mistakes(as_json=as_json):
        tree = find_tree(site)
        outcome = revert_series(tree)
    _answer(outcome, f"{tree.dist} {tree.version} in {tree.site}", as_json=as_json)


@app.command()
def status(site: Site = None, as_json: Json = False) -> None:
    """Is this series applied to the installed vLLM, whole and unedited? Exit code 0 only then."""
    with mistakes(as_json=as_json):
        found = status_of(site)

    def text() -> None:
        typer.echo(f"{found.state}: {found.line}")
        for name in found.patches:
            typer.echo(f"  {name}")

    emit(found.as_dict(), as_json=as_json, text=text)
    if found.state is not State.APPLIED:
        raise typer.Exit(EXIT_NO)


@app.command()
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
        counts = f"{_count(outcome.edited, 'edited file')}, {_count(outcome.written, 'file')}"
        typer.echo(f"{counts} written to {outcome.folder}")

    emit(outcome.as_dict(), as_json=as_json, text=text)


def _answer(outcome: Outcome, where: str, *, as_json: bool) -> None:
    def text() -> None:
        for note in outcome.notes:
            typer.echo(f"note: {note}")
        counts = f"{_count(outcome.patches, 'patch', 'patches')}, {_count(outcome.files, 'file')}"
        typer.echo(f"{outcome.done}: {where} ({counts})" if outcome.patches else outcome.done)

    emit(outcome.as_dict(), as_json=as_json, text=text)


def _count(things: Sized, one: str, many: str | None = None) -> str:
    size = len(things)
    return f"{size} {one if size == 1 else many or one + 's'}"
