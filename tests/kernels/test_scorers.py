"""What our own scorers write, against plain NumPy, for both layouts of the rows."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.packages import EXAMPLES
from vllm_av.scorers.base import Scorer, ScorerContext
from vllm_av.scorers.max_probability import MaxProbability

SLOTS, STEPS, VOCABULARY = 6, 3, 11
UNTOUCHED = -7.0


def context(**changes: Any) -> ScorerContext:
    arguments: dict[str, Any] = {
        "num_speculative_steps": STEPS,
        "max_num_reqs": SLOTS,
        "device": torch.device("cpu"),
        "has_draft_logits": True,
        "confidence_head": None,
        "config": SimpleNamespace(),
    }
    return ScorerContext(**arguments | changes)


def top(q: np.ndarray) -> float:
    return float(q.max())


def inverse_perplexity(q: np.ndarray) -> float:
    live = q[q > 0]
    return float(np.exp((live * np.log(live)).sum()))


@pytest.fixture
def sure(monkeypatch: pytest.MonkeyPatch) -> Scorer:
    """The example of another package."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "sure_scorer"))
    from sure_scorer import Sure

    scorer: Scorer = Sure(context())
    return scorer


@pytest.fixture(params=["max_probability", "sure"])
def case(request: pytest.FixtureRequest) -> tuple[Scorer, Any]:
    """A scorer, and what it makes of a distribution."""
    if request.param == "sure":
        return request.getfixturevalue("sure"), inverse_perplexity
    return MaxProbability(context()), top


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("block", [False, True], ids=["a row per request", "a block per request"])
def test_predictions(block: bool, dtype: torch.dtype, case: tuple[Scorer, Any]) -> None:
    scorer, expect = case
    random = np.random.default_rng(3)
    slots = [4, 0, -1, 2]  # of four requests in the batch; the third is padding
    rows = [(row, step) for row in range(4) for step in (range(STEPS) if block else [1])]
    logits = torch.tensor(random.normal(size=(len(rows), VOCABULARY)) * 4).to(dtype)
    logits[0, 3:] = -torch.inf  # a drafter of a reduced vocabulary
    logits[1, 1:] = -torch.inf  # all mass on one token
    temperature = torch.tensor([0.0, 9.0, 0.3, 9.0, 1.7, 9.0])  # by slot
    out = torch.full((SLOTS, STEPS), UNTOUCHED)
    steps = torch.tensor([step for _, step in rows]) if block else torch.tensor(1)
    mapping = torch.tensor([slots[row] for row, _ in rows], dtype=torch.int32)
    scorer.predict(logits, mapping, steps, temperature, out)

    expected = np.full((SLOTS, STEPS), UNTOUCHED)
    for (row, step), scores in zip(rows, logits.double().numpy(), strict=True):
        if slots[row] < 0:
            continue
        divisor = float(temperature[slots[row]]) or 1.0
        exp = np.exp((scores - scores.max()) / divisor)
        expected[row, step] = expect(exp / exp.sum())
    live = [row for row, slot in enumerate(slots) if slot >= 0]
    np.testing.assert_allclose(out[live].numpy(), expected[live], atol=1e-6)
    assert (out[4:] == UNTOUCHED).all()  # rows that are not in the batch
    if isinstance(scorer, MaxProbability):
        assert (out[2] == UNTOUCHED).all()
