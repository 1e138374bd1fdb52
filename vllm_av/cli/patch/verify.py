"""``vllm-av patch verify``: is a series as it must be?"""

from pathlib import Path
from typing import Annotated

import typer

from vllm_av.cli.output import EXIT_NO, emit, mistakes
from vllm_av.cli.patch.options import Json, Site, count
from vllm_av.patching.series import series_root
from vllm_av.patching.tree import find_tree
from vllm_av.patching.verify import source_at, tree_source, verify_all
from vllm_av.patching.verify import verify as verify_series


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
                f"{count(report.added, 'patch', 'patches')}, {count(report.problems, 'problem')}"
            )

    answers = [report.as_dict() for report in reports]
    emit({"series": answers} if every else answers[0], as_json=as_json, text=text)
    if any(report.problems for report in reports):
        raise typer.Exit(EXIT_NO)
