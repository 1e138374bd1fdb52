# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project

from types import SimpleNamespace

import pytest
import torch
from torch._dynamo.utils import counters

from vllm.platforms import current_platform
from vllm.v1.worker.gpu.spec_decode import acceptance_estimator
from vllm.v1.worker.gpu.spec_decode import adaptive_verification as av
from vllm.v1.worker.gpu.spec_decode.acceptance_estimator import (
    OnlineAcceptanceEstimator,
)
from vllm.v1.worker.gpu.spec_decode.acceptance_scorer import AcceptanceScorer
from vllm.v1.worker.gpu.spec_decode.speculator import DraftModelSpeculator

if current_platform.is_cpu():
    import vllm.v1.worker.cpu.shm  # noqa: F401 (replaces torch.cuda's streams)

DEVICE = torch.device(current_platform.device_type)


GROUPS = ("get_tp_group", "get_pcp_group")


@pytest.fixture(autouse=True)
def broadcasts(monkeypatch):
    """What each of the ranks' groups broadcast, and from which rank."""
    seen = {name: [] for name in GROUPS}
    for name in GROUPS:
        group = SimpleNamespace(
            device_communicator=None,
            broadcast=lambda tensor, src, of=seen[name]: of.append((tensor, src)),
        )
        monkeypatch.setattr(av, name, lambda group=group: group)
    return seen


def make_manager(num_steps, max_num_reqs):
    req_states = SimpleNamespace(
        num_speculative_steps=num_steps,
        max_num_reqs=max_num_reqs,
        max_num_batched_tokens=max_num_reqs * (num_steps + 1),
        device=DEVICE,
    )
    return av.maybe_create_adaptive_verification_manager(
        enable_adaptive_verification=True,
        attn_groups=[],
        req_states=req_states,
        query_start_loc=torch.empty(max_num_reqs + 1, dtype=torch.int32, device=DEVICE),
        num_bonus_tokens=1,
        max_total_logits=1 << 20,
        vllm_config=None,
    )


def trim(manager, num_reqs, draft_budget):
    """A step that keeps `draft_budget` drafts of full requests, on the device."""
    num_steps = manager.num_speculative_steps
    req_ids = [str(i) for i in range(num_reqs)]
    manager._batch_budget = (
        dict.fromkeys(req_ids, num_steps),
        dict.fromkeys(req_ids, 1),
        draft_budget,
    )
    idx_mapping = torch.arange(num_reqs, device=DEVICE).flip(0)
    starts, *_ = manager.reallocate_drafts(req_ids, idx_mapping)
    assert int(starts[-1]) == num_reqs + draft_budget


@pytest.fixture
def graphs(monkeypatch):
    """How many graphs torch.compile has made of the budget split.

    It is the same number whatever backend compiles them."""
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(
        av._assign_draft_token_budget, dynamic=True, backend="aot_eager"
    )
    monkeypatch.setattr(av, "_assign_draft_token_budget_compiled", compiled)
    yield lambda: counters["stats"]["unique_graphs"]
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("num_steps", "max_num_reqs"), [(1, 8), (2, 2), (3, 64), (7, 1), (7, 64)]
)
@torch.inference_mode()
def test_no_step_compiles_after_the_warm_up(graphs, num_steps, max_num_reqs):
    manager = make_manager(num_steps, max_num_reqs)
    manager.warm_up()
    warm = graphs()
    assert warm > 0 or max_num_reqs * num_steps < 2
    assert not manager._batch_budget
    for num_reqs in {1, 2, 3, num_steps, 5, 8, 17, max_num_reqs}:
        num_drafts = num_reqs * num_steps
        for draft_budget in {1, 2, 3, num_reqs, num_steps, num_drafts - 1}:
            if num_reqs <= max_num_reqs and 0 < draft_budget < num_drafts:
                trim(manager, num_reqs, draft_budget)
                assert graphs() == warm, (num_reqs, draft_budget)


@torch.inference_mode()
def test_the_ranks_agree_once_before_any_request(broadcasts):
    manager = make_manager(3, 4)
    manager.warm_up()
    for name in GROUPS:
        ((tensor, src),) = broadcasts[name]
        assert tensor is manager._confidence_probs
        assert src == 0


class Kernel:
    def __init__(self):
        self.launches = 0

    def __getitem__(self, grid):
        return self.launch

    def launch(self, *args, **kwargs):
        self.launches += 1


@pytest.fixture
def kernels(monkeypatch):
    names = ("_accumulate_kernel", "_refit_kernel")
    stand_ins = {name: Kernel() for name in names}
    for name in names:
        monkeypatch.setattr(acceptance_estimator, name, stand_ins[name])
    return stand_ins


def verdict(num_reqs):
    ones = torch.ones(num_reqs, dtype=torch.int32, device=DEVICE)
    return torch.arange(num_reqs, device=DEVICE), 2 * ones, ones, None


def test_the_estimators_refit_is_compiled_and_learns_nothing(kernels):
    estimator = OnlineAcceptanceEstimator(4, 3, DEVICE)
    before = {
        name: value.clone()
        for name, value in vars(estimator).items()
        if isinstance(value, torch.Tensor)
    }
    estimator.warm_up(*verdict(2))
    assert [kernel.launches for kernel in kernels.values()] == [1, 1]
    assert estimator._steps_since_refit == estimator._refits == 0
    for name, value in before.items():
        assert torch.equal(value, getattr(estimator, name))

    for _ in range(OnlineAcceptanceEstimator.REFIT_INTERVAL):
        estimator.observe(*verdict(2))
    assert estimator._refits == 1


def test_a_scorer_need_not_warm_up():
    AcceptanceScorer().warm_up(*verdict(1))


@pytest.mark.parametrize("warm_up", [False, True])
def test_steps_of_the_warm_up_are_no_verdicts(warm_up):
    called = []

    class Scorer(AcceptanceScorer):
        def observe(self, *args):
            called.append(("observe", args))

        def warm_up(self, *args):
            called.append(("warm_up", args))

    speculator = SimpleNamespace(acceptance_scorer=Scorer())
    told = verdict(2)
    DraftModelSpeculator.observe_verification(speculator, *told, warm_up=warm_up)
    assert called == [("warm_up" if warm_up else "observe", told)]
