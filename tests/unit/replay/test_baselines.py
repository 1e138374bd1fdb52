"""The learners to compare with: each does what its source says, and finds a plain law."""

import numpy as np
import pytest
from river import linear_model, optim
from scipy.optimize import minimize

from tests.unit.replay.synthetic import synthetic
from vllm_av.estimator.formula import sigmoid
from vllm_av.replay import metrics
from vllm_av.replay.baselines import platt
from vllm_av.replay.baselines.constant import ConstantPerPosition
from vllm_av.replay.baselines.platt import PlattWithCalibeating
from vllm_av.replay.baselines.river_logistic import RiverLogistic
from vllm_av.replay.replay import Learner, replay
from vllm_av.replay.stream import Stream, lay_out

TRACE = synthetic(steps=400, requests=8, temperatures=(1.0,))
STREAM = lay_out(TRACE, ("log_odds",))
LAW = sigmoid(0.8 * STREAM["log_odds"] + np.array([0.3, 0.0, -0.3])[STREAM["position"]])
LATE = STREAM.labelled & (STREAM.step >= 300)


def loss(predictions: np.ndarray, stream: Stream = STREAM) -> float:
    return metrics.log_loss(predictions[LATE], stream["accepted"][LATE])


def test_constants_are_the_rates_so_far() -> None:
    learner = ConstantPerPosition(3)
    predictions = replay(STREAM, learner)
    for step in (0, 1, 17):
        for k in range(3):
            rows = STREAM.labelled & (STREAM.step < step) & (STREAM["position"] == k)
            rate = (STREAM["accepted"][rows].sum() + 0.5) / (rows.sum() + 1.0)
            of = (STREAM.step == step) & (STREAM["position"] == k)
            assert predictions[of] == pytest.approx([rate] * 8)
    assert learner.state()["rates"] == pytest.approx(
        [STREAM["accepted"][STREAM.labelled & (STREAM["position"] == k)].mean() for k in range(3)],
        abs=1e-3,
    )


@pytest.mark.parametrize(
    ("learner", "allowed"),
    [
        (RiverLogistic(3, 0.03), 1.02),
        (PlattWithCalibeating(3, calibeating=False), 1.01),
        # Ten bins for all that the forecast says.
        (PlattWithCalibeating(3), 1.05),
    ],
)
def test_they_come_close_to_the_law(learner: Learner, allowed: float) -> None:
    constant = loss(replay(STREAM, ConstantPerPosition(3)))
    found = loss(replay(STREAM, learner))
    assert found <= allowed * loss(LAW)
    assert constant > 1.2 * loss(LAW)


def test_river_learns_and_predicts_by_itself() -> None:
    """Its own predict_proba_one, on dictionaries written by hand."""
    learner = RiverLogistic(3, 0.05)
    model = linear_model.LogisticRegression(optimizer=optim.SGD(0.05), intercept_lr=0.05)
    part = lay_out(synthetic(steps=20, requests=4, temperatures=(0.3, 1.0)), ("log_odds",))
    predictions = replay(part, learner)

    def features(row: int) -> dict[str, float]:
        x, t = float(part["log_odds"][row]) / 4.0, float(part["temperature"][row])
        return {"x": x, "t": t, "xt": x * t, f"is {part['position'][row]}": 1.0}

    for step in range(20):
        rows = np.flatnonzero(part.step == step)
        said = [model.predict_proba_one(features(row))[True] for row in rows]
        assert predictions[rows] == pytest.approx(said, abs=1e-9)
        for row in rows[part.labelled[rows]]:
            model.learn_one(features(row), bool(part["accepted"][row]))
    assert learner.state()["intercept"] == pytest.approx(model.intercept)


def test_the_newton_step_of_online_platt_scaling() -> None:
    """One step by hand, with matrices."""
    newton = platt._Newton(rho=2.0, gamma=0.5, a=1.0, b=0.2)
    theta, matrix = np.array([1.0, 0.2]), 2.0 * np.eye(2)
    for f, y in ((1.5, 0.0), (-0.5, 1.0), (3.0, 1.0)):
        newton.learn(f, y)
        x = np.array([f, 1.0])
        gradient = (1.0 / (1.0 + np.exp(-theta @ x)) - y) * x
        matrix += np.outer(gradient, gradient)
        theta = theta - np.linalg.solve(matrix, gradient) / 0.5
    assert (newton.a, newton.b) == pytest.approx(theta)


def test_a_step_beyond_the_ball_is_projected_in_the_matrixs_norm() -> None:
    newton = platt._Newton(rho=1e-3, gamma=1e-4, a=1.0, b=0.0)
    matrix = 1e-3 * np.eye(2)
    x = np.array([2.0, 1.0])
    gradient = (1.0 / (1.0 + np.exp(-2.0)) - 0.0) * x
    matrix += np.outer(gradient, gradient)
    free = np.array([1.0, 0.0]) - np.linalg.solve(matrix, gradient) / 1e-4
    assert np.linalg.norm(free) > platt.RADIUS
    newton.learn(2.0, 0.0)
    found = np.array([newton.a, newton.b])
    assert np.linalg.norm(found) == pytest.approx(platt.RADIUS, rel=1e-6)
    on_the_ball = minimize(
        lambda angle: (
            (d := platt.RADIUS * np.array([np.cos(angle[0]), np.sin(angle[0])]) - free) @ matrix @ d
        ),
        [np.arctan2(newton.b, newton.a) + 0.1],
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-9},
    )
    best = platt.RADIUS * np.array([np.cos(on_the_ball.x[0]), np.sin(on_the_ball.x[0])])
    assert found == pytest.approx(best, abs=1e-3)


def test_calibeating_says_the_mean_label_of_the_bin_so_far() -> None:
    plain = replay(STREAM, PlattWithCalibeating(3, calibeating=False))
    found = replay(STREAM, PlattWithCalibeating(3))
    bins = np.minimum((plain * 10).astype(int), 9)
    for step in (0, 1, 50):
        for row in np.flatnonzero(STREAM.step == step):
            same = STREAM.labelled & (STREAM.step < step) & (bins == bins[row])
            mean = STREAM["accepted"][same].mean() if same.any() else (bins[row] + 0.5) / 10.0
            assert found[row] == pytest.approx(mean)
