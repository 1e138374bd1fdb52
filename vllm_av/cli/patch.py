"""``vllm-av patch``: the series and the installed vLLM."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_av.cli.output import EXIT_NO, emit, mistakes
from vllm_av.patching.install import Outcome, select
from vllm_av.patching.install import apply as apply_series
from vllm_av.patching.install import revert as revert_series
from vllm_av.patching.series import read_series, series_root
from vllm_av.patching.status import GOOD
from vllm_av.patching.status import status as status_of
from vllm_av.patching.tree import find_tree, wheel_source
from vllm_av.patching.verify import tree_source
from vllm_av.patching.verify import verify as verify_series

app = typer.Typer(no_args_is_help=True, help=__doc__, rich_markup_mode=None)

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
    as_json: Json = False,
) -> None:
    """Is the series for this vLLM as it must be? Names every problem."""
    with mistakes(as_json=as_json):
        source = wheel_source(wheel) if wheel else tree_source(find_tree(site))
        report = verify_series(series_root(), source)

    def text() -> None:
        for name, added in report.added.items():
            typer.echo(f"{name}  +{added}")
        for problem in report.problems:
            typer.echo(f"problem: {problem}")
        typer.echo(
            f"series {report.version} against {report.against}: "
            f"{len(report.added)} patches, {len(report.problems)} problems"
        )

    emit(report.as_dict(), as_json=as_json, text=text)
    if report.problems:
        raise typer.Exit(EXIT_NO)


@app.command()
def apply(
    group: Annotated[
        list[str] | None,
        typer.Option(help="core or cpu; may be given twice. Without it: those that fit."),
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
    """Is the installed vLLM patched, with what, and was it edited since?"""
    with mistakes(as_json=as_json):
        found = status_of(site)

    def text() -> None:
        typer.echo(f"{found.state}: {found.line}")
        for name in found.patches:
            typer.echo(f"  {name}")

    emit(found.as_dict(), as_json=as_json, text=text)
    if found.state not in GOOD:
        raise typer.Exit(EXIT_NO)


def _answer(outcome: Outcome, where: str, *, as_json: bool) -> None:
    def text() -> None:
        for note in outcome.notes:
            typer.echo(f"note: {note}")
        counts = f"{len(outcome.patches)} patches, {len(outcome.files)} files"
        typer.echo(f"{outcome.done}: {where} ({counts})" if outcome.patches else outcome.done)

    emit(outcome.as_dict(), as_json=as_json, text=text)
