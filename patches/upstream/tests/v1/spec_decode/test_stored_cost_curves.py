# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project

from types import SimpleNamespace

import pytest
import torch

from vllm.platforms import current_platform
from vllm.v1.worker.gpu.async_utils import StepTimingSample
from vllm.v1.worker.gpu.spec_decode import adaptive_verification as av
from vllm.v1.worker.gpu.spec_decode.adaptive_verification import (
    AdaptiveVerificationManager,
    GreedyDraftBudgetPolicy,
)

if current_platform.is_cpu():
    import vllm.v1.worker.cpu.shm  # noqa: F401 (replaces torch.cuda's streams)

DEVICE = torch.device(current_platform.device_type)
MAX_NUM_REQS = 8
GROUPS = ("get_tp_group", "get_pcp_group", "get_dp_group")
CURVES = ([(1, 0.5), (8, 1.5)], [(8, 2.0), (16, 3.0), (64, 9.0)])


class Group:
    """A rank of a group whose first rank broadcasts what is `received`, in turn; first
    the curves, and why it refuses them."""

    def __init__(self):
        self.rank_in_group = 0
        self.received = [(None, None)]
        self.sent = []

    def broadcast_object(self, obj=None, src=0):
        assert src == 0
        self.sent.append(obj)
        return obj if self.rank_in_group == 0 else self.received.pop(0)


class Keeper(GreedyDraftBudgetPolicy):
    def __init__(self, curves=None):
        self.curves = curves
        self.asked = []
        self.saved = []

    def load_cost_curves(self, capture_sizes):
        self.asked.append(capture_sizes)
        return self.curves

    def save_cost_curves(self, capture_sizes, curves):
        self.saved.append((capture_sizes, curves))


@pytest.fixture
def groups(monkeypatch):
    """By name; all of one rank unless a test says otherwise."""
    by_name = {name: Group() for name in GROUPS}
    for name in GROUPS:
        monkeypatch.setattr(av, name, lambda n=name: by_name[n], raising=False)
    return by_name


def make_manager(policy):
    req_states = SimpleNamespace(
        num_speculative_steps=7,
        max_num_reqs=MAX_NUM_REQS,
        max_num_batched_tokens=64,
        device=DEVICE,
    )
    return AdaptiveVerificationManager(
        req_states,
        torch.empty(MAX_NUM_REQS + 1, dtype=torch.int32, device=DEVICE),
        num_bonus_tokens=1,
        max_total_logits=1 << 20,
        policy=policy,
    )


def profile(manager, capture_sizes):
    """As capture_model() does; the sizes that were run."""
    batches = list(manager.batches_to_profile(capture_sizes))
    manager.set_initial_cost_curves(
        [
            StepTimingSample(
                forward_ms=float(batch["num_tokens"]),
                drafter_ms=1.0,
                num_target_tokens=batch["num_tokens"],
                num_reqs=batch["num_tokens"] // 8,
                full_cudagraph=batch["num_tokens"] <= capture_sizes[-1],
            )
            for batch in batches
        ]
    )
    return sorted({batch["num_tokens"] for batch in batches})


def assert_loaded(manager):
    draft, verify = manager.cost_tables
    assert draft[[1, 8]].tolist() == [0.5, 1.5]
    # Up to the largest graph a step pads; beyond it costs are continuous.
    assert verify[[1, 8, 9, 16, 64]].tolist() == [2.0, 2.0, 3.0, 3.0, 9.0]


def test_known_costs_are_not_profiled(groups):
    policy = Keeper(CURVES)
    manager = make_manager(policy)
    assert profile(manager, [8, 16]) == []
    assert_loaded(manager)
    assert policy.asked == [[8, 16]]
    assert policy.saved == []


def test_profiled_costs_are_told_and_come_back(groups):
    policy = Keeper()
    manager = make_manager(policy)
    assert profile(manager, [8, 16]) == [8, 16, 24, 32, 64]
    ((capture_sizes, curves),) = policy.saved
    assert capture_sizes == [8, 16]
    assert curves[0] == [(1, 1.0), (2, 1.0)]
    assert curves[1] == [(size, float(size)) for size in (8, 16, 24, 32, 64)]

    again = make_manager(Keeper(curves))
    assert profile(again, [8, 16]) == []
    for loaded, profiled in zip(again.cost_tables, manager.cost_tables):
        assert loaded.tolist() == profiled.tolist()


@pytest.mark.parametrize("name", GROUPS)
def test_the_first_rank_answers_for_all(groups, name):
    groups[name].rank_in_group = 1
    groups[name].received = [(CURVES, None), CURVES]
    policy = Keeper()
    manager = make_manager(policy)
    assert profile(manager, [8, 16]) == []
    assert_loaded(manager)
    assert policy.asked == []


@pytest.mark.parametrize("name", GROUPS)
def test_no_rank_loads_alone(groups, name):
    groups[name].rank_in_group = 1
    policy = Keeper(CURVES)
    manager = make_manager(policy)
    manager.set_cost_curves = lambda draft, verify: None
    assert profile(manager, [8, 16]) == [8, 16, 24, 32, 64]
    assert policy.saved == []


def test_uncoordinated_data_parallel_ranks_ask_for_themselves(groups, monkeypatch):
    monkeypatch.setattr(av, "should_skip_dp_coordination", lambda: True, raising=False)
    groups["get_dp_group"].rank_in_group = 1
    manager = make_manager(Keeper(CURVES))
    assert profile(manager, [8, 16]) == []
    assert_loaded(manager)
    assert groups["get_dp_group"].sent == []


def test_vllms_policy_needs_no_agreement(groups):
    manager = make_manager(None)
    batches = list(manager.batches_to_profile([8, 16]))
    assert len(batches) == 5 * 5
    assert not any(group.sent for group in groups.values())


def test_a_refusal_is_told_to_all(groups):
    class Refusing(Keeper):
        def load_cost_curves(self, capture_sizes):
            raise LookupError("of another GPU")

    with pytest.raises(LookupError, match="of another GPU"):
        profile(make_manager(Refusing()), [8, 16])
    assert all(group.sent == [(None, "of another GPU")] for group in groups.values())


@pytest.mark.parametrize("name", GROUPS)
def test_what_the_first_rank_refuses_no_rank_profiles(groups, name):
    groups[name].rank_in_group = 1
    groups[name].received = [(None, "of another GPU")]
    with pytest.raises(RuntimeError, match="of another GPU"):
        profile(make_manager(Keeper()), [8, 16])


@pytest.mark.parametrize(
    "curves",
    [
        ([], CURVES[1]),
        ([(1, 1.0)], []),
        ([(0, 1.0)], CURVES[1]),
        ([(2, 1.0), (1, 1.0)], CURVES[1]),
        ([(1, 1.0), (1, 1.0)], CURVES[1]),
        ([(1, float("nan"))], CURVES[1]),
        ([(1, 1.0)], [(8, float("inf"))]),
        ([(1, 1.0)], [(8, 0.0)]),
    ],
)
def test_curves_that_make_no_table_are_refused(groups, curves):
    manager = make_manager(Keeper(curves))
    with pytest.raises(ValueError, match="cost curve"):
        profile(manager, [8, 16])
    assert manager.cost_tables is None
