"""What the demonstration says in the end: a table, what the figures mean, how to serve the same.

Rule: every sentence is computed from the figures, and a loss is said as plainly as a gain.
"""

import textwrap
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from vllm_av.demo.comparison import Comparison
from vllm_av.demo.drafter import find
from vllm_av.demo.figures import ArmResult, Coefficients, Load, Position
from vllm_av.demo.settings import ENVIRONMENT, Arm, ask_text, serve_text
from vllm_av.demo.verdict import NO_VERDICT, against, core_share

_DRAFTS = (
    "A step is one pass of the target; tokens/step are those that a request gets from one. "
    "Scheduled drafts were proposed, verified ones were checked by the target, accepted ones "
    "became text. A verified draft is observed if all drafts before it were accepted: it is an "
    "accepted one or the first rejected. Rates over few observed drafts say little."
)
_ESTIMATOR = (
    "The estimator predicts acceptance as the sigmoid of an intercept, one a draft position, and "
    "of four slopes times what they belong to: log q and -log(1 - q) of the likeliest draft "
    "token; log(1 + margin), the margin being log q minus that of the second likeliest; and the "
    "mean log-odds of the drafts before it; all at temperature 1. The "
    "coefficients are those at the temperature of the requests; a refit fits them to what was "
    "observed."
)

_CLOSE = 1.05
"""A step with all drafts costs at most so many without, where trimming has nothing to save."""


def as_dict(comparison: Comparison) -> dict[str, Any]:
    """Everything, for ``--json``."""
    settings = comparison.settings
    return {
        "settings": {
            "drafter": settings.drafter,
            "concurrency": list(settings.concurrency),
            "num_speculative_tokens": settings.num_speculative_tokens,
            "temperature": settings.temperature,
            "max_tokens": settings.max_tokens,
            "environment": ENVIRONMENT,
        },
        "arms": {
            arm.name.lower(): {
                "start_seconds": result.start_seconds,
                "loads": [_load_dict(load) for load in result.loads],
                "scorer": result.scorer and result.scorer.model_dump(),
                "estimator": result.coefficients and result.coefficients.model_dump(),
            }
            for arm, result in comparison.arms.items()
        },
        "says": sentences(comparison),
        "serve": serve_text(Arm.ADAPTIVE, settings, comparison.pair),
        "ask": ask_text(),
    }


def render(comparison: Comparison, console: Console) -> None:
    """Print tables, sentences and the ``vllm serve`` line."""
    settings = comparison.settings
    for number, concurrency in enumerate(settings.concurrency):
        console.print(f"\n{concurrency} in flight", style="bold", highlight=False)
        _print_table(_speed_table(comparison, number), console)
    adaptive = comparison.arms[Arm.ADAPTIVE]
    learnt = adaptive.coefficients
    heading = "The estimator's predictions" if learnt else "The confidence head's predictions"
    if learnt:
        slopes = ", ".join(f"{name} {value:.3f}" for name, value in learnt.slopes.items())
        heading += f" after {learnt.refits} refits: slopes {slopes}"
    console.print(heading, style="bold", highlight=False)
    _print_table(_predictions_table(comparison, learnt), console)
    explained = [_DRAFTS, _ESTIMATOR] if learnt else [_DRAFTS]
    for sentence in (*explained, *sentences(comparison)):
        text = textwrap.fill(
            sentence,
            console.width,
            initial_indent="- ",
            subsequent_indent="  ",
            break_on_hyphens=False,
        )
        console.out(text, highlight=False)
    # Never wrapped: these are there to be copied.
    serve = serve_text(Arm.ADAPTIVE, settings, comparison.pair)
    console.out(f"\nThe same over HTTP:\n{serve}", highlight=False)
    console.out(f"\nThen, in another shell:\n{ask_text()}", highlight=False)


def _print_table(table: Table, console: Console) -> None:
    """Without the spaces that rich leaves at the ends of lines."""
    with console.capture() as captured:
        console.print(table)
    lines = captured.get().splitlines()
    console.out("\n".join(line.rstrip() for line in lines), highlight=False)


def sentences(comparison: Comparison) -> list[str]:
    """What the figures mean, in words."""
    settings = comparison.settings
    setting = (
        f"{find(settings.drafter).pair} in bfloat16 on the CPU, K={_steps(comparison)}, "
        f"temperature {settings.temperature:g}, OMP_NUM_THREADS={ENVIRONMENT['OMP_NUM_THREADS']}. "
        "One run each: a small difference may be chance."
    )
    said = [setting, _core(comparison), *_scored(comparison.arms[Arm.ADAPTIVE])]
    for number, concurrency in enumerate(settings.concurrency):
        none, fixed, adaptive = (comparison.arms[arm].loads[number] for arm in Arm)
        about = [_speeds(none, fixed, adaptive), _steps_cost(none, fixed, adaptive)]
        about.append(_verified(fixed, adaptive))
        if settings.temperature == 0:
            about.append(_same(none, fixed, adaptive))
        said += [f"{concurrency} in flight: {sentence}" for sentence in about]
    if any(NO_VERDICT in sentence for sentence in said):
        said.insert(
            2,
            "Where there is no verdict, the clock and core time disagree on which arm was faster: "
            "the machine was busy, and the arms got unequal shares of a core. Run it again when "
            "the machine is idle.",
        )
    return said


def _core(comparison: Comparison) -> str:
    loads = [load for result in comparison.arms.values() for load in result.loads]
    share = min(map(core_share, loads))
    return (
        f"While they were measured, the arms had at least {share:.0%} of a core. The rest went to "
        "waiting and to other work on this machine: the more, the less the speeds say. The counts "
        "do not depend on it."
    )


def _scored(adaptive: ArmResult) -> list[str]:
    """What predicts, why that, and how often it learnt."""
    said = []
    if adaptive.scorer:
        said.append(f"Scorer in force: {adaptive.scorer.name}, since {adaptive.scorer.reason}.")
    if learnt := adaptive.coefficients:
        refit = (
            f"A refit comes after every {learnt.refit_interval:,} decode steps, and sooner at "
            f"first; there were {learnt.decode_steps:,}, the warm-up's included"
        )
        unfitted = ", so the coefficients are those it starts with" if not learnt.refits else ""
        said.append(f"{refit}{unfitted}.")
    return said


def _speeds(none: Load, fixed: Load, adaptive: Load) -> str:
    clauses = (
        against(Arm.FIXED, fixed, Arm.NONE, none),
        against(Arm.ADAPTIVE, adaptive, Arm.NONE, none),
        against(Arm.ADAPTIVE, adaptive, Arm.FIXED, fixed),
    )
    return f"{'; '.join(clauses)}."


def _steps_cost(none: Load, fixed: Load, adaptive: Load) -> str:
    """Why: speculation pays where a step gives more tokens than it takes time."""

    def cost(load: Load) -> str:
        time = load.cpu_seconds_per_step / none.cpu_seconds_per_step
        tokens = _number(load.tokens_per_step)
        return f"{time:.2f}x the core time for {tokens} tokens a request and step"

    return (
        f"against a step without speculation, one of fixed K took {cost(fixed)}, one of adaptive "
        f"verification {cost(adaptive)}."
    )


def _verified(fixed: Load, adaptive: Load) -> str:
    drafts, all_drafts = adaptive.drafts, fixed.drafts
    labels = sum(position.labels for position in drafts.positions)
    every = drafts.verified == drafts.scheduled
    part = "all" if every else f"{drafts.verified:,} of"
    said = (
        f"{_priced(adaptive)}adaptive verification verified {part} {drafts.scheduled:,} scheduled "
        f"drafts, and {_share(drafts.accepted, drafts.verified)} "
        f"of these were accepted; fixed K verified all {all_drafts.verified:,}, and "
        f"{_share(all_drafts.accepted, all_drafts.verified)} were."
    )
    if not labels:
        return f"{said} Nothing was observed, so its predictions cannot be judged here."
    predicted = sum(position.predicted for position in drafts.positions) / labels
    observed = sum(position.accepted for position in drafts.positions) / labels
    return (
        f"{said} Over its {labels:,} observed drafts it predicted {predicted:.2f} on average, "
        f"and {observed:.2f} was observed."
    )


def _priced(adaptive: Load) -> str:
    """Why so much or so little was verified."""
    if adaptive.priced_ms is None:
        return ""
    none, every = adaptive.priced_ms
    little = ", so that trimming would save almost nothing" if every <= _CLOSE * none else ""
    return (
        f"pricing a step at {none:.0f} ms without drafts and {every:.0f} ms with all of them"
        f"{little}, "
    )


def _same(*loads: Load) -> str:
    texts = list(zip(*(load.outputs for load in loads), strict=True))
    same = sum(all(other == first for other in others) for first, *others in texts)
    return (
        f"{same} of {len(texts)} requests got the same tokens in all three arms (bfloat16 flips "
        "near-ties; that adaptive verification changes nothing is tested in float32)."
    )


def _steps(comparison: Comparison) -> int:
    return comparison.settings.num_speculative_tokens


def _speed_table(comparison: Comparison, number: int) -> Table:
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("arm", no_wrap=True)
    for name in ("tokens/s", "tokens/step", "scheduled", "verified", "accepted"):
        table.add_column(name, justify="right", no_wrap=True)
    for arm, result in comparison.arms.items():
        load = result.loads[number]
        drafts = load.drafts
        counts = (drafts.scheduled, drafts.verified, drafts.accepted)
        table.add_row(
            str(arm),
            f"{load.tokens_per_second:.1f}",
            _number(load.tokens_per_step),
            *("-" if arm is Arm.NONE else f"{count:,}" for count in counts),
        )
    return table


def _predictions_table(comparison: Comparison, learnt: Coefficients | None) -> Table:
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("draft position", no_wrap=True)
    for step in range(_steps(comparison)):
        table.add_column(str(step + 1), justify="right")
    if learnt:
        table.add_row("intercept", *(f"{value:.3f}" for value in learnt.intercepts))
    for number, concurrency in enumerate(comparison.settings.concurrency):
        positions = comparison.arms[Arm.ADAPTIVE].loads[number].drafts.positions
        table.add_section()
        rows = {
            "predicted": [_number(position.predicted_mean) for position in positions],
            "observed": [_number(position.observed_mean) for position in positions],
            "observed drafts": [f"{position.labels:,}" for position in positions],
        }
        for name, values in rows.items():
            table.add_row(f"{name}, {concurrency} in flight", *values)
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({part / whole:.0%})" if whole else "none"


def _load_dict(load: Load) -> dict[str, Any]:
    drafts = load.drafts
    return {
        **load.model_dump(exclude={"outputs", "drafts"}),
        "tokens_per_second": load.tokens_per_second,
        "tokens_per_step": load.tokens_per_step,
        "seconds_per_step": load.seconds_per_step,
        "scheduled": drafts.scheduled,
        "verified": drafts.verified,
        "accepted": drafts.accepted,
        "positions": [_position_dict(position) for position in drafts.positions],
    }


def _position_dict(position: Position) -> dict[str, Any]:
    return {
        "labels": position.labels,
        "predicted_mean": position.predicted_mean,
        "observed_mean": position.observed_mean,
    }
