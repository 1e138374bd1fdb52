"""``vllm-av trace``: traces of labelled drafts, and what can be done with them."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from vllm_av.cli.output import emit, mistakes
from vllm_av.config.model import ONLINE
from vllm_av.demo.drafter import DRAFTERS
from vllm_av.demo.progress import shown
from vllm_av.replay.learners import LEARNERS
from vllm_av.replay.offline import Plan, Recorded, carried_pair, own_pair, record
from vllm_av.replay.scoring import FROM_STEP

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def trace() -> None:
    """Traces of labelled drafts: what was drafted, what was predicted, what was accepted."""


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
File = Annotated[Path, typer.Argument(help="A trace: a Parquet file or a folder of parts.")]
Scorer = Annotated[str, typer.Option(help=f"One of {', '.join(LEARNERS)}.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="As in adaptive_verification_config: estimator.damping=20. Repeatable.",
    ),
]


@app.command("record")
def record_(
    out: Annotated[Path, typer.Option(help="A folder that does not exist yet.")],
    drafter: Annotated[str, typer.Option(help=f"One of {', '.join(DRAFTERS)}.")] = "eagle",
    model: Annotated[
        str | None, typer.Option(help="A target of your own; then also the next two.")
    ] = None,
    speculative_config: Annotated[
        str | None, typer.Option(help="As vLLM takes it, JSON; adaptive verification is added.")
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(help='One JSON value a line: text, or {"text", "workload"}.'),
    ] = None,
    engine_arguments: Annotated[
        str, typer.Option(help="vLLM's others, of a pair of your own, as JSON.")
    ] = "{}",
    workload: Annotated[
        list[str] | None,
        typer.Option(help="Of a drafter here; may be given several times. Default: all four."),
    ] = None,
    temperature: Annotated[
        list[float] | None,
        typer.Option(help="May be given several times: drawn evenly for each request. Default: 1."),
    ] = None,
    request_steps: Annotated[
        int, typer.Option(help="How many drafts of requests, each of up to K tokens.")
    ] = Plan.request_steps,
    concurrency: Annotated[int, typer.Option(help="Requests in flight.")] = Plan.concurrency,
    num_speculative_tokens: Annotated[
        int, typer.Option(help="K, the tokens drafted in a step, of a drafter here.")
    ] = 5,
    everything: Annotated[
        bool,
        typer.Option(
            "--everything/--budget",
            help="Verify every draft, so that no label is missing; or those that are worth it.",
        ),
    ] = Plan.everything,
    seed: Annotated[int, typer.Option(help="Of the order, the lengths, the samples.")] = Plan.seed,
    as_json: Json = False,
) -> None:
    """Run the offline engine and record what became of its drafts."""
    with mistakes(as_json=as_json):
        plan = Plan(out, request_steps, concurrency, tuple(temperature or (1.0,)), everything, seed)
        with shown() as show:
            if model or speculative_config or prompts:
                pair = own_pair(model, speculative_config, prompts, workload, engine_arguments)
            else:
                pair = carried_pair(drafter, num_speculative_tokens, workload, show)
            found = record(plan, *pair, partial(show, "trace", f"recording into {out}"))
        emit(asdict(found), as_json=as_json, text=lambda: _print(found))


def _print(found: Recorded) -> None:
    typer.echo(
        f"{found.request_steps:,} request-steps of {found.requests:,} requests in "
        f"{found.seconds:.0f} s, {found.parts} part{'' if found.parts == 1 else 's'}: {found.out}"
    )


@app.command("replay")
def replay_(
    file: File,
    scorer: Scorer = ONLINE,
    settings: Settings = None,
    batch: Annotated[
        int | None,
        typer.Option(help="Requests to a decode step. Default: the trace's own steps."),
    ] = None,
    temperature: Annotated[
        list[float] | None,
        typer.Option(help="Only requests of this temperature. Repeatable. Default: all."),
    ] = None,
    from_step: Annotated[
        int | None,
        typer.Option(
            help="Score no row before this decode step, nor in the first half. "
            f"Default: {FROM_STEP}, or in a shorter trace the first half alone."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict, then learn, step by step as in serving; every figure, beside the offline optimum."""
    from vllm_av.replay.run import Wish, run
    from vllm_av.replay.text import lines

    with mistakes(as_json=as_json):
        wish = Wish(scorer, tuple(settings or ()), batch, tuple(temperature or ()), from_step)
        result = run(file, wish)

    def text() -> None:
        for line in lines(result):
            typer.echo(line)

    emit(result.as_dict(), as_json=as_json, text=text)


@app.command("report")
def report_(
    file: File,
    out: Annotated[
        Path | None,
        typer.Option(help="The page. Default: the trace's name with .html, in this folder."),
    ] = None,
    scorer: Scorer = ONLINE,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Write a page: calibration, coefficients over time, features, fits by workload."""
    from vllm_av.replay.report.make import make

    with mistakes(as_json=as_json):
        made = make(file, out, scorer, settings or ())

    def text() -> None:
        for line in made.says:
            typer.echo(f"- {line}")
        typer.echo(f"{made.page}: {made.bytes / 1000:,.0f} kB, {made.seconds:.1f} s")

    emit(made.as_dict(), as_json=as_json, text=text)
