"""A training run of a head: what it makes does not depend on being killed on the way."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.unit.training import reference
from vllm_av.errors import TrainingError
from vllm_av.training import heads
from vllm_av.training.autoregressive import HIDDEN
from vllm_av.training.data import Corpus
from vllm_av.training.eagle import Eagle
from vllm_av.training.heads import HeadPlan, Run, fit, noisy
from vllm_av.training.schedule import Schedule

VOCABULARY = 64


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """Five sequences of which one is held out."""
    draw = torch.Generator().manual_seed(0)
    lengths = [14, 15, 16, 17, 18]
    ids = torch.randint(0, VOCABULARY, (sum(lengths),), generator=draw)
    features = torch.randn(len(ids), 4, HIDDEN, generator=draw).bfloat16()
    embedding = (torch.randn(VOCABULARY, HIDDEN, generator=draw) / 24).bfloat16()
    tokens = ids, features, embedding, torch.arange(0, VOCABULARY, 3)
    return reference.corpus(lengths, 4, 2, tokens)


@pytest.fixture(scope="module")
def plan() -> HeadPlan:
    """Five steps of a head that drafts from the whole vocabulary."""
    schedule = Schedule(steps=5, peak=1e-3, warm_up=2, rollout=(1, 2))
    return HeadPlan("head", Eagle, dict, False, 0.2, schedule, batch=2)


@pytest.fixture(scope="module")
def whole(corpus: Corpus, plan: HeadPlan, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fit(tmp_path_factory.mktemp("whole"), plan, corpus)


def test_a_killed_run_goes_on_to_the_same_weights(
    corpus: Corpus, plan: HeadPlan, whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "_SAVED_EVERY", 2)
    advance = Run.advance

    def killed(run: Run) -> None:
        if run.step == 3:
            raise KeyboardInterrupt
        advance(run)

    monkeypatch.setattr(Run, "advance", killed)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, plan, corpus)
    seen = []
    monkeypatch.setattr(Run, "advance", lambda run: (seen.append(run.step), advance(run)))
    for other in (replace(plan, noise=0.1), replace(plan, seed=1)):
        with pytest.raises(TrainingError, match=r"state\.pt was made by another plan"):
            fit(tmp_path, other, corpus)
    with pytest.raises(TrainingError, match=r"state\.pt was made by another plan"):
        fit(tmp_path, plan, replace(corpus, held_out=[True] + [False] * 4))
    resumed = fit(tmp_path, plan, corpus)
    assert seen == [2, 3, 4]  # what was done after the last save is done again
    for name, parameter in whole.drafter.state_dict().items():
        assert torch.equal(parameter, resumed.drafter.state_dict()[name]), name
    assert resumed.averages == whole.averages


def test_training_brings_the_drafts_nearer(corpus: Corpus, plan: HeadPlan) -> None:
    run = Run(corpus, plan)
    run.advance()
    first = run.averages["cross-entropy"][0]
    for _ in range(15):
        run.step = 0  # the same batch at the same rate
        run.advance()
    assert run.averages["cross-entropy"][0] < first - 0.1


def test_noise_keeps_to_its_part_of_each_state_and_follows_its_seed() -> None:
    features = torch.randn(4, 50, HIDDEN) * torch.tensor([1.0, 10.0, 100.0, 0.0])[:, None, None]
    apart = noisy(features, 0.2, seed=1) - features
    size = features.square().mean(-1, keepdim=True).sqrt()
    assert (apart.abs() <= 0.2001 * size + 1e-5).all()
    # A uniform number of [-1, 1] has the standard deviation 1 / sqrt(3).
    torch.testing.assert_close(apart[1].std(), 0.2 / 3**0.5 * size[1].mean(), rtol=0.03, atol=0)
    assert torch.equal(noisy(features, 0.2, seed=1), features + apart)
    assert not torch.equal(noisy(features, 0.2, seed=2), features + apart)


@pytest.mark.parametrize(("step", "rate", "rollout"), [(0, 0.5, 1), (1, 1.0, 1), (9, 0.02, 3)])
def test_the_schedule(step: int, rate: float, rollout: int) -> None:
    schedule = Schedule(steps=10, peak=2.0, warm_up=2, rollout=(1, 3))
    assert schedule.learning_rate(step) / 2.0 == pytest.approx(rate, abs=0.03)
    assert schedule.draft_steps(step) == rollout


def test_the_rollout_grows_at_equal_shares_of_the_run() -> None:
    schedule = Schedule(steps=7, peak=1.0, rollout=(1, 2, 3))
    assert [schedule.draft_steps(step) for step in range(7)] == [1, 1, 1, 2, 2, 3, 3]
