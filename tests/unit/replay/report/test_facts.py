"""Counts of a trace, counted again row by row."""

import math

import numpy as np
import pytest

from tests.unit.replay.report.full import full
from tests.unit.replay.synthetic import synthetic
from vllm_av.replay.metrics import BINS, ece_mass
from vllm_av.replay.report.facts import Facts, chance_ece, facts_of
from vllm_av.replay.scoring import regimes
from vllm_av.replay.stream import lay_out
from vllm_av.replay.trace import Trace


def counted(trace: Trace) -> Facts:
    return facts_of(trace, lay_out(trace), regimes(trace["temperature"]))


def test_every_count_is_right() -> None:
    trace = full(steps=40, requests=5, verified=2)
    facts = counted(trace)
    k = trace.info.num_speculative_tokens
    entropy: dict[int, list[float]] = {}
    labels, accepted, spared = [0] * k, [0] * k, 0
    sound = alive = True
    for row in range(trace.num_rows):
        position = int(trace["position"][row])
        if position == 0:
            sound = alive = True
        sound = sound and bool(trace["masked"][row] < 0) and bool(trace.finite[row])
        known = alive and bool(trace["verified"][row])
        labels[position] += known and sound
        accepted[position] += known and sound and bool(trace["accepted"][row])
        spared += known and not sound
        alive = alive and bool(trace["accepted"][row])
        if trace.finite[row]:
            entropy.setdefault(position, []).append(float(trace["entropy"][row]))
    assert [p.labels for p in facts.positions] == labels
    assert [p.accepted for p in facts.positions] == accepted
    assert [p.verified for p in facts.positions] == [200, 200, 0]
    assert [p.drafts for p in facts.positions] == [200, 200, 200]
    assert [p.entropy for p in facts.positions] == pytest.approx(
        [np.mean(entropy[i]) for i in range(k)]
    )
    assert facts.spared == spared > 0
    assert (facts.rows, facts.steps, facts.requests) == (600, 40, 5)
    assert facts.total.labels == sum(labels)
    assert facts.positions[0].rate == accepted[0] / labels[0]
    assert math.isnan(facts.positions[2].rate)  # the target never saw it
    assert math.isnan(facts.positions[2].chance)


def test_groups_add_up_to_the_whole() -> None:
    trace = full(steps=40, requests=5)
    facts = counted(trace)
    for groups in (facts.positions, facts.temperatures, facts.workloads):
        for name in ("drafts", "verified", "labels", "accepted"):
            total = sum(getattr(each, name) for each in groups)
            assert total == getattr(facts.total, name)
    assert [each.name for each in facts.temperatures] == ["0", "1"]
    assert [each.name for each in facts.workloads] == ["docs", "code", "chat", "(none)"]


def test_masked_rows_count_for_each_of_their_reasons() -> None:
    facts = counted(full(steps=40, requests=5))  # 200 request-steps, ten of them masked
    assert facts.masked == {"top_k": 15, "penalties": 15, "grammar": 15}
    assert facts.masked_rows == 30
    assert facts.not_finite == 6 * 3


def test_what_was_not_recorded_is_not_counted() -> None:
    facts = counted(synthetic(20))
    assert facts.masked_rows is None
    assert facts.masked == {}
    assert facts.workloads == ()
    assert math.isnan(facts.total.entropy)


@pytest.mark.parametrize(("rate", "labels"), [(0.5, 1_000), (0.8, 20_000)])
def test_chance_is_what_a_perfect_predictor_shows(rate: float, labels: int) -> None:
    rng = np.random.default_rng(3)
    # The order within equal predictions means nothing: tell them apart by less than matters.
    p = rate + np.linspace(0.0, 1e-9, labels)
    shown = [ece_mass(p, rng.random(labels) < rate) for _ in range(300)]
    assert chance_ece(rate, labels) == pytest.approx(np.mean(shown), rel=0.03)


def test_fewer_labels_than_bins_have_a_bin_each() -> None:
    # Each is off by the standard deviation of one label, times that of |normal|.
    assert chance_ece(0.5, 7) == pytest.approx(0.5 * math.sqrt(2 / math.pi))
    assert chance_ece(0.5, BINS) == pytest.approx(0.5 * math.sqrt(2 / math.pi))


def test_chance_without_labels_is_unknown() -> None:
    assert math.isnan(chance_ece(0.5, 0))
