"""Each feature's values, from the drafter's distribution itself."""

import numpy as np
import pytest

from tests.unit.replay.report.full import full
from tests.unit.replay.synthetic import synthetic
from vllm_av.replay.report.features import FEATURES, recorded

BY_KEY = {feature.key: feature for feature in FEATURES}


def test_the_log_odds_of_the_drawn_token() -> None:
    q = np.array([0.9, 0.5, 1e-6])
    found = BY_KEY["logit_drawn"].values(np.log(q))
    assert found == pytest.approx(np.log(q / (1 - q)))


def test_the_double_logarithm_of_the_drawn_token() -> None:
    q = np.array([0.9, 0.5, 1e-6])
    assert BY_KEY["double_log_drawn"].values(np.log(q)) == pytest.approx(-np.log(-np.log(q)))


@pytest.mark.parametrize("key", ["logit_drawn", "double_log_drawn"])
def test_certain_and_impossible_tokens_stay_finite(key: str) -> None:
    log_q = np.array([0.0, 1e-4, -1e-30, -1e4], np.float32)  # float32 may round above 0
    found = BY_KEY[key].values(log_q)
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= 40.0
    assert found[0] == found[1] == 40.0


def test_a_probability_as_it_is() -> None:
    found = BY_KEY["max_probability_scaled"].values(np.array([0.0, np.log(3.0)], np.float32))
    assert found == pytest.approx([0.5, 0.75])


def test_only_what_reads_the_drawn_token_is_lossy() -> None:
    lossy = {feature.key for feature in FEATURES if not feature.lossless}
    assert lossy == {"logit_drawn", "double_log_drawn"}
    assert {BY_KEY[key].column for key in lossy} == {"log_q_drawn"}
    assert sum(feature.column == "log_q_drawn" for feature in FEATURES) == len(lossy)


def test_what_a_trace_lacks_is_not_in_its_table() -> None:
    assert [feature.key for feature in recorded(synthetic(5))] == [
        "log_odds_scaled", "log_odds", "max_probability_scaled", "max_probability",
    ]  # fmt: skip
    assert recorded(full(steps=20)) == FEATURES
