"""From a trace to a report: replays, judges, fits.

Rule: the order of the work is here and the work itself is not; whatever a trace lacks is left out
and said in the notes.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vllm_av.config.model import ONLINE
from vllm_av.errors import TraceError
from vllm_av.replay.metrics import Bools, Floats
from vllm_av.replay.options import chosen
from vllm_av.replay.report import features as kinds
from vllm_av.replay.report.facts import Facts, facts_of, workload_number
from vllm_av.replay.report.html import shortened
from vllm_av.replay.report.model import GroupFit, Report
from vllm_av.replay.report.offline import (
    MOST_LABELS,
    Labels,
    RegimeFits,
    correlation,
    feature_row,
    group_fit,
    regime_fits,
    slope_row,
)
from vllm_av.replay.report.predictors import Predictor, Source, follow, judge_all
from vllm_av.replay.scoring import FROM_STEP, Halves, Regimes, halves, regimes
from vllm_av.replay.stream import Stream, lay_out
from vllm_av.replay.trace import Trace

UPSTREAM = "upstream"
HEAD = "confidence_head"
SERVED = "recorded"
OPTIMUM = "optimum"

MOST_WORKLOADS = 24
"""The largest; a table of more is no table."""


def build(trace: Trace, scorer: str = ONLINE, assignments: Sequence[str] = ()) -> Report:
    """Everything that a report says.

    Args:
        trace: with all of its columns.
        scorer: a name of :data:`vllm_av.replay.learners.LEARNERS`.
        assignments: its settings, see :func:`vllm_av.replay.options.chosen`.

    Raises:
        TraceError: ``AV-REPLAY-...``: no such scorer, or one that reads what the trace lacks.
        ConfigError: a setting is wrong.
    """
    notes: list[str] = []
    sources = [_replayed(trace, scorer, assignments, scorer)]
    stream = lay_out(trace)
    sides = _sides(stream)
    regime = regimes(trace["temperature"])
    facts = facts_of(trace, stream, regime)
    labels, rows = _labels(trace, stream, regime, sides)
    recorded = kinds.recorded(trace)
    if lacking := [f.title for f in kinds.FEATURES if f not in recorded]:
        notes.append(f"Not in the tables, since not recorded: {', '.join(dict.fromkeys(lacking))}.")
    values = {f.key: (f, f.values(trace[f.column][rows])) for f in recorded}
    unscaled = values["log_odds"][1]
    within = regime_fits(regime.names, values, labels)
    sources += _others(trace, scorer, notes)
    sources += _optimum(trace, regime, within)
    workloads = _workloads(trace, facts, unscaled, labels, rows)
    return Report(
        source=Path(trace.source).name or trace.source,
        info=trace.info,
        facts=facts,
        scorer=scorer,
        predictors=tuple(judge_all(each, stream, sides, regime) for each in sources),
        features=tuple(feature_row(f, x, labels) for f, x in values.values()),
        regimes=within.rows,
        slopes=tuple(
            row
            for key in ("log_odds_scaled", "log_odds")
            if key in values and (row := slope_row(*values[key], labels))
        ),
        workloads=workloads,
        temperatures={
            key: _temperatures(facts, values[key][1], labels)
            for key in ("log_odds_scaled", "log_odds")
            if key in values
        },
        correlations=(
            correlation([w.slope for w in workloads], [w.entropy for w in workloads]),
            correlation([w.intercepts[0] for w in workloads], [w.entropy for w in workloads]),
        ),
        notes=tuple(notes),
        every=labels.every,
        parted=not (sides.fitted & sides.scored).any(),
    )


def _sides(stream: Stream) -> Halves:
    """Fitted and scored rows; the same ones where there are too few steps to part them."""
    try:
        return halves(stream, FROM_STEP)
    except TraceError:
        sound = stream.labelled & stream.usable
        return Halves(sound, sound, 0)


def _replayed(trace: Trace, name: str, assignments: Sequence[str], title: str) -> Source:
    learner = chosen(name, assignments, trace)
    probability, history = follow(lay_out(trace, learner.columns), learner)
    return Source(name, title, probability, history if history[0][1] else ())


def _others(trace: Trace, scorer: str, notes: list[str]) -> list[Source]:
    """What the scorer in question is compared with."""
    found = []
    if trace.has("head") and scorer != HEAD:
        found.append(Source(HEAD, "confidence head", trace["head"].astype(np.float64)))
    if scorer != UPSTREAM:
        try:
            found.append(_replayed(trace, UPSTREAM, (), "upstream’s estimator"))
        except TraceError as error:
            notes.append(f"Upstream’s estimator is not here: {error.given}.")
    if trace.has("confidence") and scorer != SERVED:
        by = f" ({shortened(trace.info.scorer)})" if trace.info.scorer else ""
        found.append(Source(SERVED, f"as served{by}", trace["confidence"].astype(np.float64)))
    return found


def _optimum(trace: Trace, regime: Regimes, within: RegimeFits) -> list[Source]:
    """The best lossless feature of each regime, fitted there; nothing where nothing was fitted."""
    p = np.full(trace.num_rows, np.nan)
    features = {f.key: f for f in kinds.FEATURES}
    for number, best in enumerate(within.best):
        if best is not None:
            key, law = best
            rows = np.flatnonzero((regime.of == number) & trace.finite)
            x = features[key].values(trace[features[key].column][rows])
            p[rows] = law.predict(x, trace["position"][rows])
    several = " per temperature" if len(within.best) > 1 else ""
    title = f"offline optimum{several}"
    return [Source(OPTIMUM, title, p)] if any(within.best) else []


def _labels(trace: Trace, stream: Stream, regime: Regimes, sides: Halves) -> tuple[Labels, Bools]:
    """The rows of the fits, and which of the trace's they are."""
    rows = stream.labelled & stream.usable
    every = -(-int(rows.sum()) // MOST_LABELS) or 1
    if every > 1:
        # At random, since requests may take turns; the same ones each time.
        drawn = np.random.default_rng(0).integers(every, size=int(stream.group[-1]) + 1)
        rows &= drawn[stream.group] == 0
    return (
        Labels(
            position=trace["position"][rows].astype(np.int64),
            label=trace["accepted"][rows],
            regime=regime.of[rows],
            fitted=sides.fitted[rows],
            scored=sides.scored[rows],
            num_positions=stream.num_positions,
            every=every,
        ),
        rows,
    )


def _workloads(
    trace: Trace, facts: Facts, x: Floats, labels: Labels, rows: Bools
) -> tuple[GroupFit, ...]:
    """Fitted alone: the workloads with the most labels."""
    if not facts.workloads:
        return ()
    number = workload_number(trace)[rows]
    largest = sorted(facts.workloads, key=lambda each: -each.labels)[:MOST_WORKLOADS]
    return tuple(
        group_fit(each.name, x, labels, number == each.number, each.entropy)
        for each in facts.workloads
        if each in largest
    )


def _temperatures(facts: Facts, x: Floats, labels: Labels) -> tuple[GroupFit, ...]:
    return tuple(
        group_fit(each.name, x, labels, labels.regime == number, each.entropy)
        for number, each in enumerate(facts.temperatures)
    )


def predictor(report: Report, key: str) -> Predictor | None:
    """The one of that key."""
    return next((each for each in report.predictors if each.key == key), None)
