"""``vllm-av patch apply``, ``revert`` and ``status``: the series and an installed vLLM."""

from typing import Annotated

import typer

from vllm_av.cli.output import EXIT_NO, emit, mistakes
from vllm_av.cli.patch.options import Json, Site, count
from vllm_av.patching.install import Outcome, select
from vllm_av.patching.install import apply as apply_series
from vllm_av.patching.install import revert as revert_series
from vllm_av.patching.series import read_series, series_root
from vllm_av.patching.status import State
from vllm_av.patching.status import status as status_of
from vllm_av.patching.tree import find_tree


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


def revert(site: Site = None, as_json: Json = False) -> None:
    """Give back every byte of the installed vLLM."""
    with mistakes(as_json=as_json):
        tree = find_tree(site)
        outcome = revert_series(tree)
    _answer(outcome, f"{tree.dist} {tree.version} in {tree.site}", as_json=as_json)


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


def _answer(outcome: Outcome, where: str, *, as_json: bool) -> None:
    def text() -> None:
        for note in outcome.notes:
            typer.echo(f"note: {note}")
        counts = f"{count(outcome.patches, 'patch', 'patches')}, {count(outcome.files, 'file')}"
        typer.echo(f"{outcome.done}: {where} ({counts})" if outcome.patches else outcome.done)

    emit(outcome.as_dict(), as_json=as_json, text=text)
