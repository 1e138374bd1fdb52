"""A step that the next round disproves is undone; one that only chance speaks against is not."""

import numpy as np
import pytest

from tests.unit.estimator.streams import Ours, rounds, sampled, sigmoid
from vllm_av.estimator import rules
from vllm_av.estimator.settings import EstimatorSettings

DEFAULT = EstimatorSettings()
POSITIONS = 4
STREAM = sampled(
    lambda rng, shape: rng.normal(2.0, 2.0, shape), lambda f: sigmoid(0.5 * f - 0.2), POSITIONS
)


def misled() -> tuple[Ours, tuple[float, np.ndarray]]:
    """Upstream's start is the truth of the stream; one round of lies leads away from it."""
    ours = Ours(DEFAULT, POSITIONS)
    feature, label, labelled = next(rounds(STREAM, 1000, 1, seed=1))
    before = ours.slope, ours.intercepts.copy()
    lies = np.where(np.arange(len(label))[:, None] % 3 == 0, 1.0 - label, label)
    ours.round(feature, lies, labelled)
    assert abs(ours.slope - before[0]) > 0.1
    return ours, before


def test_undone_and_no_round_lost() -> None:
    """After the undo the same round teaches what it would have taught at the old coefficients."""
    ours, before = misled()
    truth = next(rounds(STREAM, 1000, 1, seed=2))
    ours.round(*truth)
    assert ours.estimator.undone == 1
    other = Ours(DEFAULT, POSITIONS)
    other.round(*truth)
    assert ours.slope == pytest.approx(other.slope, abs=1e-12)
    np.testing.assert_allclose(ours.intercepts, other.intercepts, atol=1e-12)
    assert STREAM.loss(ours.slope, ours.intercepts) <= 1.002 * STREAM.loss(*before)


def test_without_the_rule_the_step_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "TIE", np.inf)
    ours, before = misled()
    ours.round(*next(rounds(STREAM, 1000, 1, seed=2)))
    assert ours.estimator.undone == 0
    other = Ours(DEFAULT, POSITIONS)
    other.round(*next(rounds(STREAM, 1000, 1, seed=2)))
    assert abs(ours.slope - other.slope) > 1e-3
    assert before[0] == 0.5


def test_the_next_step_is_held_short_and_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "RATES_SEE_LABELS", np.inf)  # the rates would take over
    monkeypatch.setattr(rules, "REACH_AFTER_UNDO", 1 / 16)
    ours, _ = misled()
    reach = ours.estimator._last_reach
    feature, label, labelled = next(rounds(STREAM, 1000, 1, seed=2))
    ours.round(feature, label, labelled)
    held = max(rules.REACH_AFTER_UNDO * min(reach, rules.LATER_REACH), rules.LEAST_REACH)
    assert ours.estimator._last_reach <= held
    # Now all drafts are accepted: the reach doubles with each step until it is full again.
    reaches = []
    for _ in range(5):
        ours.round(feature, np.ones(label.shape), labelled)
        reaches.append(ours.estimator._last_reach)
    assert reaches[0] == pytest.approx(2 * held)
    assert reaches[1] == pytest.approx(4 * held)
    assert ours.estimator._allowed == rules.LATER_REACH
    assert ours.estimator.undone == 1


def test_chance_undoes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Near the optimum the older coefficients are better every other time."""
    undone = []
    for deviations in (rules.CHANCE, 0.0):
        monkeypatch.setattr(rules, "CHANCE", deviations)
        ours = Ours(DEFAULT, POSITIONS)
        for one in rounds(STREAM, 300, 40):
            ours.round(*one)
        undone.append(ours.estimator.undone)
    assert undone[0] == 0
    assert undone[1] >= 5


def test_without_a_step_nothing_is_undone() -> None:
    """Both losses are the same then, but for the last bit."""
    ours = Ours(DEFAULT, 1)
    nothing = np.zeros((0, 1))
    for _ in range(3):
        ours.round(nothing, nothing, nothing.astype(bool))
    feature = np.full((100, 1), 0.0)
    ours.round(feature, np.ones((100, 1)) * 0.0, np.ones((100, 1), bool))
    assert ours.estimator.undone == 0
    assert ours.estimator.refits == 4
