"""The acceptance estimator learns inside the engine on the CPU."""

from tests.engine.harness import STEPS, Engine


def test_the_estimator_refits(adaptive: Engine, prompts: list[list[int]]) -> None:
    estimator = adaptive.estimator
    refits = estimator.refits
    adaptive.price(1e15)  # everything is verified, so every position is labelled
    for _ in range(60):
        if estimator.refits > refits:
            break
        adaptive.greedy(prompts[:2], batch=2)
    assert estimator.refits == refits + 1
    slope, intercepts = estimator.slope.item(), estimator.intercepts.tolist()
    assert 0 <= slope < 5
    assert slope != estimator.settings.initial_slope
    assert all(-5 < intercept < 5 for intercept in intercepts)
    assert len(set(intercepts)) > 1  # they start equal
    predictions = estimator.scores[estimator.features != 0].sigmoid()  # of slots that were used
    assert len(predictions) >= 2 * STEPS
    assert ((predictions > 0) & (predictions < 1)).all()
