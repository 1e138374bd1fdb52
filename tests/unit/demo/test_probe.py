"""The probe's labels, on the smallest thing that looks like an engine.

That the counts equal those of the estimator is tested on the real one (tests/engine).
"""

from types import SimpleNamespace

import numpy as np
import pytest

from vllm_av.demo.probe import Probe
from vllm_av.errors import Code, DemoError


def _engine(speculator: object, manager: object = None) -> SimpleNamespace:
    runner = SimpleNamespace(
        speculator=speculator,
        adaptive_verification=manager,
        execute_model=lambda scheduler_output: "output",
    )
    worker = SimpleNamespace(worker=SimpleNamespace(model_runner=runner))
    core = SimpleNamespace(model_executor=SimpleNamespace(driver_worker=worker))
    return SimpleNamespace(engine_core=SimpleNamespace(engine_core=core))


def _runner(engine: SimpleNamespace) -> SimpleNamespace:
    return engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner


def _speculator(scorer: object) -> SimpleNamespace:
    return SimpleNamespace(
        acceptance_scorer=scorer,
        num_speculative_steps=3,
        observe_verification=lambda idx_mapping, num_sampled, num_rejected, target_only: None,
    )


def test_a_label_is_an_accepted_draft_or_the_first_rejected_one() -> None:
    # Slots 2, 0 and 1 hold the predictions of the rows 0, 1 and 2.
    predictions = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9]])
    manager = SimpleNamespace(_confidence_probs=predictions)
    engine = _engine(_speculator(None), manager)
    probe = Probe(engine)
    # One accepted and two rejected; all three accepted; none of three verified; a prefill chunk.
    idx, sampled, rejected = np.array([2, 0, 1, 1]), np.array([2, 4, 1, 0]), np.array([2, 0, 0, 0])
    _runner(engine).speculator.observe_verification(idx, sampled, rejected, None)
    first, second, third = probe.drafts.positions
    assert (first.labels, first.accepted) == (2, 2)
    assert (second.labels, second.accepted) == (2, 1)
    assert (third.labels, third.accepted) == (1, 1)  # the draft after a rejection is no label
    assert first.predicted == pytest.approx(0.7 + 0.1)
    assert second.predicted == pytest.approx(0.8 + 0.2)
    assert third.predicted == pytest.approx(0.3)
    assert [position.predictions for position in probe.drafts.positions] == [2, 2, 1]
    assert (probe.drafts.verified, probe.drafts.accepted) == (6, 4)


def test_coefficients_are_those_of_the_scorer_s_snapshot() -> None:
    state = {
        "knots": np.array([0.0, 1.0]),
        "slopes": np.array([[1.0, 2.0, 0.5, 0.0], [0.0, 4.0, 0.5, 0.4]]),
        "levels": np.array([0.0, -0.4]),
        "intercepts": np.array([-0.2, 0.1]),
        "refits": np.array([4]),
    }
    settings = SimpleNamespace(refit_interval=100)
    estimator = SimpleNamespace(settings=settings, decode_steps=407)
    scorer = SimpleNamespace(snapshot=lambda: state, scorer=SimpleNamespace(estimator=estimator))
    coefficients = Probe(_engine(_speculator(scorer))).coefficients(temperature=0.25)
    assert coefficients is not None
    assert coefficients.model_dump() == {
        "slopes": pytest.approx(
            {"log q": 0.75, "-log(1 - q)": 2.5, "log(1 + margin)": 0.5, "before": 0.1}
        ),
        "intercepts": pytest.approx([-0.3, 0.0]),
        "refits": 4,
        "refit_interval": 100,
        "decode_steps": 407,
    }


@pytest.mark.parametrize(
    ("head", "block", "name", "reason"),
    [
        (None, None, "online_estimator", "the drafter's checkpoint has no confidence head"),
        (object(), {}, "confidence_head", "the drafter's checkpoint has a confidence head"),
        (object(), {"scorer": "max_probability"}, "max_probability", "named in"),
    ],
)
def test_the_scorer_is_the_engine_s_with_the_reason_of_the_choice(
    head: object, block: dict[str, str] | None, name: str, reason: str
) -> None:
    speculator = _speculator(SimpleNamespace(name=name))
    speculator.get_confidence_head = lambda: head
    speculator.use_local_argmax_reduction = False
    speculator.vllm_config = SimpleNamespace(
        speculative_config=SimpleNamespace(adaptive_verification_config=block)
    )
    scorer = Probe(_engine(speculator)).scorer()
    assert scorer is not None
    assert scorer.name == name
    assert scorer.reason.startswith(reason)


def test_without_predictions_no_mean_is_made_up() -> None:
    engine = _engine(_speculator(None))
    probe = Probe(engine)
    one = (np.array([0]), np.array([2]), np.array([1]), np.array([4]))
    _runner(engine).speculator.observe_verification(*one)
    assert [position.labels for position in probe.drafts.positions] == [1, 1, 0]
    assert [position.predicted_mean for position in probe.drafts.positions] == [None] * 3
    assert probe.scorer() is None


def test_a_scorer_that_fits_nothing_has_no_coefficients() -> None:
    engine = _engine(_speculator(SimpleNamespace(snapshot=dict)))
    assert Probe(engine).coefficients(1.0) is None


def test_scheduled_drafts_are_counted_before_the_step() -> None:
    engine = _engine(_speculator(None))
    probe = Probe(engine)
    plan = SimpleNamespace(scheduled_spec_decode_tokens={"a": [1, 2, 3], "b": [4]})
    assert _runner(engine).execute_model(plan) == "output"
    assert probe.drafts.scheduled == 4
    probe.reset()
    assert probe.drafts.scheduled == 0
    assert len(probe.drafts.positions) == 3


def test_prices_are_read_from_the_cost_tables() -> None:
    engine = _engine(_speculator(None))
    assert Probe(engine).priced_ms(2) is None
    draft, verify = np.arange(5) * 10.0, np.arange(20) * 1.0
    _runner(engine).adaptive_verification = SimpleNamespace(
        cost_tables=(draft, verify), _confidence_probs=None
    )
    # Two requests of three drafts: 2 tokens without them, 8 with all.
    assert Probe(engine).priced_ms(2) == (22.0, 28.0)


def test_without_speculation_there_is_nothing_to_read() -> None:
    probe = Probe(_engine(None))
    assert probe.drafts.positions == []
    assert probe.coefficients(1.0) is None


def test_another_engine_is_refused_by_the_name_it_lacks() -> None:
    engine = _engine(_speculator(None))
    del _runner(engine).speculator.observe_verification
    with pytest.raises(DemoError, match="'observe_verification'") as caught:
        Probe(engine)
    assert caught.value.code is Code.DEMO_PROBE
    with pytest.raises(DemoError, match="'engine_core'"):
        Probe(SimpleNamespace(engine_core=SimpleNamespace()))
