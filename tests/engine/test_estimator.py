"""vLLM's own acceptance estimator learns inside the engine on the CPU."""

from tests.engine.harness import STEPS, Engine


def test_the_estimator_refits(adaptive: Engine, prompts: list[list[int]]) -> None:
    from vllm.v1.worker.gpu.spec_decode import acceptance_estimator as upstream

    estimator = adaptive.runner.speculator.acceptance_estimator
    refits = estimator._refits
    adaptive.price(1e15)  # everything is verified, so every position is labelled
    for _ in range(60):
        if estimator._refits > refits:
            break
        adaptive.greedy(prompts[:2], batch=2)
    assert estimator._refits == refits + 1
    slope, intercepts = estimator.slope.item(), estimator.intercepts.tolist()
    assert 0 <= slope < 5
    assert slope != upstream._INIT_SLOPE
    assert all(-5 < intercept < 5 for intercept in intercepts)
    assert len(set(intercepts)) > 1  # upstream starts them equal
    predictions = estimator.predictions[estimator.predictions != 0]  # of slots that were used
    assert len(predictions) >= 2 * STEPS
    assert ((predictions > 0) & (predictions < 1)).all()
