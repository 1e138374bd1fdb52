"""Requests that are verified in full: how often, which, and at nobody's expense beyond bounds."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vllm_av.budget.exploration import ExploringPolicy, trimmed_steps

STEPS = 4
SLOTS = 16


class TopSurvivals:
    """A budget that the test sets, to the best survivals, as vLLM's own policy assigns it."""

    def __init__(self, budget: int) -> None:
        self.budget = budget

    def choose(self, inputs: Any) -> int:
        return min(self.budget, int(inputs.max_draft_budget))

    def assign(
        self,
        confidence_probs: torch.Tensor,
        idx_mapping: torch.Tensor,
        capacities: torch.Tensor,
        draft_budget: int,
    ) -> None:
        survival = confidence_probs[idx_mapping].nan_to_num(1.0, 1.0, 1.0).cumprod(dim=1)
        missing = torch.arange(STEPS) >= capacities[:, None]
        best = survival.masked_fill(missing, -1.0).flatten().topk(draft_budget).indices
        taken = torch.zeros(survival.numel(), dtype=torch.bool).index_fill_(0, best, True)
        capacities.copy_(taken.view_as(survival).sum(dim=1))


class Batch:
    """Requests with drafts; those of ``drafts`` 0 are in their prompts."""

    def __init__(self, drafts: list[int], room: int | None = None, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.drafts = np.array(drafts, np.int32)
        self.slots = torch.from_numpy(rng.permutation(SLOTS)[: len(drafts)])
        self.confidences = torch.from_numpy(rng.random((SLOTS, STEPS), np.float32)) / 4
        total = int(self.drafts.sum())
        self.room = total if room is None else room

    def step(self, policy: Any) -> tuple[int, list[int]]:
        """The budget and what each request keeps of it, as vLLM's manager asks for them."""
        inputs = SimpleNamespace(scheduled_drafts=self.drafts, max_draft_budget=self.room)
        budget = policy.choose(inputs)
        assert 0 <= budget <= self.room
        kept = torch.from_numpy(self.drafts.copy())
        before = self.confidences.clone()
        if budget == 0:
            kept.zero_()
        elif budget < int(self.drafts.sum()):
            policy.assign(self.confidences, self.slots, kept, budget)
        torch.testing.assert_close(self.confidences, before, rtol=0, atol=0, equal_nan=True)
        assert int(kept.sum()) == budget
        assert (kept.numpy() <= self.drafts).all()
        return budget, kept.tolist()

    def full(self, kept: list[int]) -> list[int]:
        """The requests whose drafts were all kept."""
        return [n for n, drafts in enumerate(self.drafts) if drafts and kept[n] == drafts]


def test_nothing_is_explored_at_a_share_of_nothing() -> None:
    batch = Batch([4, 4, 4])
    policy = ExploringPolicy(TopSurvivals(2), 0.0)
    alone = Batch([4, 4, 4]).step(TopSurvivals(2))
    assert all(batch.step(policy) == alone for _ in range(300))


@pytest.mark.parametrize("share", [0.01, 0.25, 0.4])
@pytest.mark.parametrize("budget", [0, 3])
def test_the_share_of_requests_that_is_verified_in_full(share: float, budget: int) -> None:
    batch = Batch([4, 4, 0, 4, 4, 4])
    policy = ExploringPolicy(TopSurvivals(budget), share)
    seen = np.zeros(6, int)
    steps = 2000
    for _ in range(steps):
        _, kept = batch.step(policy)
        seen[batch.full(kept)] += 1
    assert seen.sum() == pytest.approx(5 * share * steps, abs=1)
    assert seen[2] == 0
    assert np.ptp(np.delete(seen, 2)) <= 1  # in turn


def test_the_rest_of_the_budget_goes_where_it_would_have_gone() -> None:
    batch = Batch([4, 2, 4, 4])
    policy = ExploringPolicy(TopSurvivals(6), 0.25)
    for turn in range(4):
        budget, kept = batch.step(policy)
        assert budget == 8  # and 14 drafts are scheduled: two more for one of four requests
        assert kept[turn] == batch.drafts[turn]
        others = Batch([4, 2, 4, 4])
        others.drafts[turn] = 0
        _, alone = others.step(TopSurvivals(8 - kept[turn]))
        assert [k for n, k in enumerate(kept) if n != turn] == [
            k for n, k in enumerate(alone) if n != turn
        ]


def test_a_share_of_one_verifies_all_that_there_is_room_for() -> None:
    policy = ExploringPolicy(TopSurvivals(0), 1.0)
    assert all(Batch([4, 1, 4]).step(policy) == (9, [4, 1, 4]) for _ in range(50))
    assert Batch([4, 4, 4], room=7).step(policy)[0] == 7


def test_the_steps_that_trim_are_counted_for_the_process() -> None:
    before = trimmed_steps()
    policy = ExploringPolicy(TopSurvivals(0), 1.0)
    for _ in range(5):
        Batch([4, 1, 4]).step(policy)
        Batch([0, 0]).step(policy)
    assert trimmed_steps() == before
    Batch([4, 4, 4], room=11).step(policy)
    Batch([4, 4]).step(ExploringPolicy(TopSurvivals(7), 0.0))
    assert trimmed_steps() == before + 2


def test_room_that_is_short_goes_to_the_explored_request_first() -> None:
    batch = Batch([4, 4, 4], room=4)
    policy = ExploringPolicy(TopSurvivals(4), 1 / 3)
    found = [batch.full(batch.step(policy)[1]) for _ in range(6)]
    assert found == [[n % 3] for n in range(6)]


def test_certain_drafts_and_broken_estimates_of_others_do_not_come_before_it() -> None:
    batch = Batch([4, 4, 4, 4])
    batch.confidences[batch.slots[0]] = 1.0
    batch.confidences[batch.slots[1]] = torch.nan
    batch.confidences[batch.slots[3]] = 0.0
    policy = ExploringPolicy(TopSurvivals(0), 0.25)
    assert [batch.step(policy)[1] for _ in range(4)] == [
        [4 * (n == turn) for n in range(4)] for turn in range(4)
    ]


def test_two_ranks_explore_the_same_whatever_each_of_them_estimates() -> None:
    """A rank's own confidences, and so its own budget, may differ in their last bits and more."""
    rng = np.random.default_rng(1)
    ranks = [ExploringPolicy(TopSurvivals(budget), 0.07) for budget in (2, 2, 3)]
    explored = 0
    for number in range(400):
        drafts = rng.integers(0, STEPS + 1, rng.integers(1, 9)).tolist()
        batch, other = Batch(drafts, seed=number), Batch(drafts, seed=number)
        other.confidences = other.confidences.flip(0)
        (budget, kept), same, (_, apart) = (
            each.step(rank) for each, rank in zip((batch, batch, other), ranks, strict=True)
        )
        assert (budget, kept) == same
        if budget > 2:
            explored += 1
            assert set(batch.full(kept)) & set(other.full(apart))
    assert explored > 50


def test_a_step_without_drafts_is_left_alone() -> None:
    policy = ExploringPolicy(TopSurvivals(0), 0.9)
    assert Batch([0, 0]).step(policy) == (0, [0, 0])
    assert Batch([4]).step(policy)[0] == 0  # a share of .9 is not yet one request
    assert Batch([0, 0]).step(policy) == (0, [0, 0])
    assert Batch([4]).step(policy) == (4, [4])


def test_a_split_before_the_first_step_runs_what_exploring_runs() -> None:
    """The warm-up's, of which the steps know nothing."""

    class Seen(TopSurvivals):
        rows = torch.empty(0)

        def assign(
            self,
            confidence_probs: torch.Tensor,
            idx_mapping: torch.Tensor,
            capacities: torch.Tensor,
            draft_budget: int,
        ) -> None:
            self.rows = confidence_probs[idx_mapping]
            super().assign(confidence_probs, idx_mapping, capacities, draft_budget)

    batch = Batch([4, 4, 4])
    policies = [ExploringPolicy(Seen(3), share) for share in (0.4, 0.4, 0.0)]
    rows = []
    for policy in policies[1:]:
        kept = torch.from_numpy(batch.drafts.copy())
        policy.assign(batch.confidences, batch.slots, kept, 2)
        assert int(kept.sum()) == 2
        rows.append(policy._inner.rows)
    assert (rows[0] == 1.0).all()
    assert torch.equal(rows[1], batch.confidences[batch.slots])
    cold, warm, _ = policies
    assert [batch.step(warm) for _ in range(30)] == [batch.step(cold) for _ in range(30)]
