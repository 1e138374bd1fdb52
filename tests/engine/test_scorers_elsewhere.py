"""Scorers of other packages, found by their entry points, and scorers that are refused."""

from collections.abc import Callable, Iterator

import pytest
import torch

from tests.engine import models
from tests.engine.harness import Engine, engine_arguments, logged_by, speculation, try_elsewhere
from tests.engine.sampling import (
    REQUESTS,
    TINY_STEPS,
    cap_drafts,
    draw,
    p_value,
    tiny_changes,
    tiny_engine,
)
from tests.packages import EXAMPLES, expose, python_path
from vllm_av.errors import RefusedError, ScorerError

PROMPTS = [[n % 8, 3 * n % 8, 5] for n in range(4)]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The search path on which the examples count as installed."""
    root = tmp_path_factory.mktemp("packages")
    projects = ("sure_scorer", "faulty_scorers")
    return [path for name in projects for path in expose(EXAMPLES / name, root / name)]


def test_one_runs_in_the_engine_s_own_process_until_it_raises(
    packages: list[str], random_pair: tuple[str, str]
) -> None:
    target, draft = random_pair
    spec = speculation(draft, "draft_model", True, TINY_STEPS, {"scorer": "raises"})
    environment = {
        "PYTHONPATH": python_path(packages),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "VLLM_LOGGING_LEVEL": "INFO",
    }
    arguments = engine_arguments(target, spec, **tiny_changes())
    result, log = try_elsewhere(arguments, PROMPTS, environment, temperatures=[0, 2])
    assert result["v2"] is True
    assert result["tokens"] == [[models.greedy(target, prompt) for prompt in PROMPTS]]
    chosen = "scorer raises (named in adaptive_verification_config; auto is online_estimator)"
    assert log.count(chosen) == 1
    assert result["error"].startswith("EngineDeadError: ")
    raised = "LookupError in predict: this scorer has no table for such a temperature; "
    assert f"ScorerError: [AV-SCORER-FAILED] the scorer 'raises' raised {raised}" in log


@pytest.fixture
def importable(packages: list[str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for path in packages:
            patch.syspath_prepend(path)
        yield


def refusal(start: Callable[[], Engine]) -> str:
    with pytest.raises(ScorerError) as caught:
        start()
    return str(caught.value)


@pytest.mark.usefixtures("importable")
def test_a_lossy_one_is_refused(random_pair: tuple[str, str]) -> None:
    line = refusal(lambda: tiny_engine(random_pair, block={"scorer": "looks"}))
    assert line.startswith("[AV-SCORER-LOSSY] the scorer 'looks' needs the drawn tokens")


def test_a_head_that_the_checkpoint_lacks_is_refused(headless: tuple[str, str]) -> None:
    with pytest.raises(RefusedError) as caught:
        tiny_engine(headless, "dspark", block={"scorer": "confidence_head"})
    (reason,) = caught.value.reasons
    assert "[AV-CHECK-SCORER] the scorer confidence_head " in reason
    assert ": the checkpoint holds none " in reason


@pytest.mark.usefixtures("importable")
def test_a_lossy_one_that_is_allowed_biases_the_output(
    constant_pair: tuple[str, str],
) -> None:
    """p = (.5, .5), q = (.2, .8): what is unlikely to be drawn is dropped, and too rare then."""
    block = {"scorer": "looks", "allow_lossy": True}
    with logged_by("vllm.vllm_av.seams.scorer") as records:
        engine = tiny_engine(constant_pair, steps=1, block=block)
    warnings = [record.getMessage() for record in records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "the scorer looks is lossy and allow_lossy is set" in warnings[0]

    cap_drafts(engine, drafts=round(0.8 * REQUESTS))
    tokens, _ = draw(engine, temperature=1.0, length=2)
    half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    frequency = (tokens[:, 1] == 1).mean()
    assert frequency == pytest.approx(0.6, abs=0.02)
    assert p_value(tokens[:, 1:], half) < 1e-6


@pytest.mark.usefixtures("importable")
def test_the_example_trims_and_stays_exact(random_pair: tuple[str, str]) -> None:
    engine = tiny_engine(random_pair, block={"scorer": "sure"})
    assert engine.scorer.name == "sure"
    cap_drafts(engine, 2 * len(PROMPTS) - 1, requests=len(PROMPTS))
    with engine.recorded() as steps:
        tokens = engine.greedy(PROMPTS, batch=len(PROMPTS))
    assert tokens == [models.greedy(random_pair[0], prompt) for prompt in PROMPTS]
    assert any(step.ragged for step in steps)
