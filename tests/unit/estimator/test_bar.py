"""The bar: on any stationary stream, after five rounds of 500 labels per position or more, a
log-loss of at most 2% above the better of the start values and the acceptance rates.

A round has 500 labels per position here. The fixed streams are held to 2% as they are. Random
ones, as adversarial as hypothesis likes, are held to it with 5,000 labels a round; with 500 the
labels of the last round alone, by chance, cost a well-fitted estimator more than that where nearly
all labels are alike (5 of 500), so there the bar has an allowance for chance.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.estimator.streams import (
    Floats,
    Generator,
    Ours,
    Stream,
    Upstream,
    learn,
    sampled,
    sigmoid,
    tempered,
)
from vllm_av.estimator.settings import EstimatorSettings

BAR = 1.02
DEFAULT = EstimatorSettings()


def normal(mean: float, deviation: float) -> object:
    return lambda rng, shape: rng.normal(mean, deviation, shape)


def constant(value: float, rate: float, positions: int = 2) -> Stream:
    return Stream(*(np.full((positions, 1), v) for v in (value, rate, 1.0)))


def each(*rates: float) -> Floats:
    return np.array(rates)[:, None]


def two(rng: Generator, shape: tuple[int, int]) -> Floats:
    return np.where(rng.random(shape) < 0.7, 40.0, -40.0)


def heavy(rng: Generator, shape: tuple[int, int]) -> Floats:
    return 2.0 * rng.standard_t(1.5, shape)


def spiked(rng: Generator, shape: tuple[int, int]) -> Floats:
    return np.where(rng.random(shape) < 0.005, 40.0, rng.normal(0, 1, shape))


STREAMS = {
    # Where upstream fails (measured on a real pair): the feature scaled by a low temperature.
    "temperature 0.1": tempered(0.1),
    "temperature 0.01": tempered(0.01),
    "mixed temperatures": tempered(0.01, 0.1, 0.3, 0.5, 0.7, 1.0, 1.3, positions=7),
    "greedy, half accepted": constant(40.0, 0.5, 5),
    "temperature 1": tempered(1.0, positions=7),
    "temperature 1.3": tempered(1.3, positions=16),
    # Constants at and near the clamp, of every rate.
    **{
        f"constant {f:g}, rate {p:g}": constant(f, p)
        for f in (-40.0, -4.4, 0.0, 4.4, 12.0, 40.0)
        for p in (0.01, 0.1, 0.43, 0.9, 0.99)
    },
    "nearly constant, followed": sampled(normal(20.0, 0.1), lambda f: sigmoid(10 * (f - 20.0))),
    "nearly constant, ignored": sampled(normal(-20.0, 0.01), 0.6, positions=5),
    # The feature says the opposite, or nothing.
    "opposite": sampled(normal(2.0, 3.0), lambda f: sigmoid(1.0 - f)),
    "opposite, mildly": sampled(normal(2.0, 3.0), lambda f: sigmoid(0.5 - 0.2 * f)),
    "opposite at 40": sampled(two, lambda f: np.where(f > 0, 0.2, 0.8)),
    "nothing": sampled(normal(3.0, 3.0), 0.7, positions=7),
    "nothing at 40": sampled(two, 0.3),
    "rates from .01 to .99": sampled(
        normal(2.0, 3.0), each(0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99), positions=7
    ),
    # Tails and shapes that no logistic has.
    "heavy tails": sampled(heavy, lambda f: sigmoid(0.5 * f)),
    "heavy tails, ignored": sampled(heavy, 0.5),
    "a few at 40": sampled(spiked, lambda f: np.where(f > 30, 0.3, 0.9)),
    "threshold": sampled(normal(2.0, 3.0), lambda f: np.where(f > 1.0, 0.99, 0.01)),
    "both tails accepted": sampled(normal(2.0, 3.0), lambda f: sigmoid(np.abs(f - 2.0) - 2.0)),
    "steep": sampled(normal(0.0, 1.0), lambda f: sigmoid(8.0 * f)),
    "far away": sampled(normal(6.0, 1.2), lambda f: sigmoid(0.5 * f - 5.5), positions=5),
    "each position elsewhere": sampled(
        lambda rng, shape: rng.normal(0, 1, shape) + np.linspace(-20, 20, shape[0])[:, None],
        each(0.8, 0.6, 0.4, 0.2, 0.1),
        positions=5,
    ),
}


@pytest.mark.parametrize("labels", [500, 2000])
@pytest.mark.parametrize("name", STREAMS)
def test_fixed_streams(name: str, labels: int) -> None:
    loss, reference = learn(Ours, STREAMS[name], labels, DEFAULT)
    assert loss <= BAR * reference


@pytest.mark.parametrize(
    "name", ["temperature 0.1", "temperature 0.01", "mixed temperatures", "greedy, half accepted"]
)
def test_upstream_fails(name: str) -> None:
    loss, reference = learn(Upstream, STREAMS[name], 2000, DEFAULT)
    assert not loss <= 1.2 * reference


SETTINGS = {
    "no damping": EstimatorSettings(damping=0.0),
    "much damping": EstimatorSettings(damping=500.0),
    "no ridge": EstimatorSettings(ridge=0.0),
    "much ridge": EstimatorSettings(ridge=1.0),
    "slope 0": EstimatorSettings(initial_slope=0.0),
    "slope 3": EstimatorSettings(initial_slope=3.0, initial_intercepts=2.0),
    "slope 50": EstimatorSettings(initial_slope=50.0),
    "intercept -5": EstimatorSettings(initial_intercepts=-5.0),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_other_settings(setting: str) -> None:
    for name, stream in STREAMS.items():
        loss, reference = learn(Ours, stream, 2000, SETTINGS[setting])
        assert loss <= BAR * reference, name


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Any law on a few features, each with any rate that leaves the base within .01 and .99."""
    positions, atoms = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    size = positions * atoms
    near = draw(st.floats(-40, 40))
    spread = draw(st.sampled_from([0.1, 3.0, 80.0]))
    feature = st.one_of(
        st.sampled_from([-40.0, 40.0]),
        st.floats(-1, 1).map(lambda x: float(np.clip(near + spread * x, -40, 40))),
    )
    rate = st.one_of(st.sampled_from([0.01, 0.5, 0.99]), st.floats(0.01, 0.99))
    weight = st.one_of(st.just(1.0), st.floats(0.01, 1.0))

    def table(values: st.SearchStrategy[float]) -> Floats:
        found = draw(st.lists(values, min_size=size, max_size=size))
        return np.array(found).reshape(positions, atoms)

    weights = table(weight)
    return Stream(table(feature), table(rate), weights / weights.sum(axis=1, keepdims=True))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(streams(), st.integers(0, 100))
def test_any_stream(stream: Stream, seed: int) -> None:
    loss, reference = learn(Ours, stream, 5000, DEFAULT, seed)
    assert loss <= BAR * reference


@settings(max_examples=300, deadline=None, derandomize=True)
@given(streams(), st.integers(0, 100))
def test_any_stream_of_few_labels(stream: Stream, seed: int) -> None:
    """Chance: 2 nats per coefficient, on a round of 500 labels per position. Chi-square over 2
    with one degree of freedom each has a mean of 1/2 and 99% of it below 3.3."""
    loss, reference = learn(Ours, stream, 500, DEFAULT, seed)
    chance = 2.0 * (stream.positions + 1) / (500 * stream.positions)
    assert loss <= BAR * reference + chance
