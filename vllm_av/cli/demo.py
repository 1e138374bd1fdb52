"""``vllm-av demo``: three arms of a real model on this machine's CPU."""

from typing import Annotated

import typer
from rich.console import Console

from vllm_av.cli.output import emit, mistakes
from vllm_av.demo.comparison import compare
from vllm_av.demo.drafter import DRAFTERS
from vllm_av.demo.progress import shown
from vllm_av.demo.report import as_dict, render
from vllm_av.demo.settings import Settings

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_DEFAULT = Settings()


@app.command()
def demo(
    drafter: Annotated[str, typer.Option(help=f"One of {', '.join(DRAFTERS)}.")] = _DEFAULT.drafter,
    concurrency: Annotated[
        list[int] | None,
        typer.Option(help="Requests in flight; may be given several times. Default: 1 and 8."),
    ] = None,
    num_speculative_tokens: Annotated[
        int, typer.Option(help="K, the tokens drafted in a step.")
    ] = _DEFAULT.num_speculative_tokens,
    temperature: Annotated[
        float, typer.Option(help="Of every request. At 0 the arms' tokens are compared.")
    ] = _DEFAULT.temperature,
    max_tokens: Annotated[
        int, typer.Option(help="After which a request ends, if its text has not.")
    ] = _DEFAULT.max_tokens,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run a real model without speculation, with fixed K, adaptively; compare."""
    with mistakes(as_json=as_json):
        settings = Settings(
            drafter=drafter,
            concurrency=tuple(concurrency or _DEFAULT.concurrency),
            num_speculative_tokens=num_speculative_tokens,
            temperature=temperature,
            max_tokens=max_tokens,
        )
        with shown() as show:
            comparison = compare(settings, show)
        emit(
            as_dict(comparison),
            as_json=as_json,
            text=lambda: render(comparison, Console()),
        )
