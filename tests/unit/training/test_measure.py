"""What is made of an engine's counters."""

import pytest

from vllm_av.demo.figures import Drafts, Position
from vllm_av.training.measure import calibration, figures


def test_figures_are_a_step_s_and_each_position_s_given_the_earlier_ones() -> None:
    row = figures([10, 6, 3, 0, 0, 0])
    assert row == {"steps": 10, "accepted": 0.9, "given": [0.6, 0.5, 0.0, 0.0, 0.0]}
    assert figures([2501, 2500])["accepted"] == 2500 / 2501


def test_calibration_is_the_mean_over_the_drafts_that_have_a_label() -> None:
    positions = [Position(labels=4, accepted=3, predicted=2.0), Position()]
    row = calibration(Drafts(scheduled=8, verified=8, positions=positions))
    assert row == {"labels": [4, 0], "said": [0.5, 0.0], "seen": [0.75, 0.0]}


def test_calibration_is_of_an_engine_that_verified_every_draft() -> None:
    with pytest.raises(AssertionError):
        calibration(Drafts(scheduled=8, verified=7, positions=[Position(labels=4)]))
