"""The features of the drafter's distribution, against the same in plain NumPy and float64."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vllm_av.replay import draft_features as module
from vllm_av.replay.columns import COLUMNS
from vllm_av.replay.draft_features import FEATURES, draft_features

TEMPERATURES = (0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 1.0, 1.3)


def plain(logits: Any, temperature: float, drawn: int) -> dict[str, float]:
    """One row; the log-odds as log(q / (1 - q)) of the best token, its rival masses summed."""
    scale = temperature if temperature > 0 else 1.0
    found = {}
    for ending, divisor in (("", 1.0), ("_scaled", scale)):
        x = np.asarray(logits, np.float64) / divisor
        log_q = x - x.max()
        log_q -= np.log(np.exp(log_q).sum())
        order = np.argsort(-log_q, kind="stable")
        with np.errstate(divide="ignore"):
            odds = log_q[order[0]] - np.log(np.exp(log_q[order[1:]]).sum())
        q = np.exp(log_q)
        found["log_odds" + ending] = np.clip(odds, -40, 40)
        found["entropy" + ending] = -(q[q > 0] * log_q[q > 0]).sum()
        found["margin" + ending] = min(log_q[order[0]] - log_q[order[1]], 1e4)
    found["log_q_drawn"] = max(float(log_q[drawn]), -1e4)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocabulary", [2, 50, 5000])
def test_they_are_those_of_numpy(dtype: torch.dtype, vocabulary: int) -> None:
    draw = torch.Generator().manual_seed(vocabulary)
    n = 64
    logits = torch.randn(n, vocabulary, generator=draw) * 4
    # From flat to all but certain.
    logits[torch.arange(n), torch.randint(vocabulary, (n,), generator=draw)] += torch.linspace(
        0, 45, n
    )
    logits = logits.to(dtype)
    temperature = torch.tensor([TEMPERATURES[i % 8] for i in range(n)])
    drawn = torch.randint(vocabulary, (n,), generator=draw)
    found = draft_features(logits, temperature, drawn).numpy()
    assert found.dtype == np.float32
    for i in range(n):
        wanted = plain(logits[i].float().numpy(), float(temperature[i]), int(drawn[i]))
        np.testing.assert_allclose(
            found[i], [wanted[name] for name in FEATURES], rtol=1e-5, atol=1e-4
        )


def test_the_size_of_what_is_worked_on_at_once_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logits = torch.randn(7, 30, generator=torch.Generator().manual_seed(1))
    arguments = (logits, torch.full((7,), 0.5), torch.zeros(7, dtype=torch.int32))
    whole = draft_features(*arguments)
    monkeypatch.setitem(module._ELEMENTS, "cpu", 70)
    assert torch.equal(draft_features(*arguments), whole)


@pytest.mark.parametrize(
    "row",
    [
        [float("nan"), 1.0, 2.0],
        [1.0, float("nan"), 2.0],
        [float("-inf")] * 3,
        [float("inf"), 0.0, 1.0],
        [float("inf"), float("inf"), float("inf")],
    ],
)
def test_what_is_no_distribution_is_nan_and_spoils_no_other_row(row: list[float]) -> None:
    logits = torch.tensor([row, [0.0, 1.0, 2.0]])
    found = draft_features(logits, torch.ones(2), torch.zeros(2, dtype=torch.int64))
    assert found[0].isnan().all()
    assert found[1].isfinite().all()


def test_one_token_with_all_the_mass_is_at_the_ends_of_the_ranges() -> None:
    infinity = float("inf")
    logits = torch.tensor([[0.0, -infinity, -infinity], [9e4, -9e4, -9e4]])
    found = draft_features(logits, torch.ones(2), torch.zeros(2, dtype=torch.int64))
    # log-odds, entropy, margin, each plain and scaled; log q of the token itself.
    assert found.tolist() == [[40.0, 40.0, 0.0, 0.0, 1e4, 1e4, 0.0]] * 2


def test_ties_for_the_top_leave_one_of_them_in_the_rest() -> None:
    found = draft_features(torch.zeros(1, 4), torch.ones(1), torch.zeros(1, dtype=torch.int64))
    wanted = [-np.log(3), -np.log(3), np.log(4), np.log(4), 0, 0, -np.log(4)]
    np.testing.assert_allclose(found[0].numpy(), wanted, rtol=1e-6)


def test_no_rows_are_no_features() -> None:
    empty = torch.zeros(0, 9)
    found = draft_features(empty, torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    assert found.shape == (0, 7)


@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 4), st.integers(2, 9)),
        elements=st.one_of(
            st.floats(-1e4, 1e4, width=32),
            st.sampled_from([0.0, 1e4, -1e4, float("inf"), float("-inf"), float("nan")]),
        ),
    ),
    st.sampled_from(TEMPERATURES),
)
@settings(deadline=None, max_examples=300)
def test_whatever_the_logits_a_trace_may_hold_what_comes_of_them(
    logits: Any, temperature: float
) -> None:
    n = len(logits)
    found = draft_features(
        torch.from_numpy(logits), torch.full((n,), temperature), torch.zeros(n, dtype=torch.int64)
    ).numpy()
    finite = np.isfinite(found)
    assert (finite.all(axis=1) | ~finite.any(axis=1)).all()
    for name, values in zip(FEATURES, found.T, strict=True):
        there = values[np.isfinite(values)]
        assert (there >= COLUMNS[name].low).all(), name
        assert (there <= COLUMNS[name].high).all(), name
