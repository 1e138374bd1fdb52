"""Replayed on a trace of its own, an estimator says what it said in the engine: the same rounds,
the same labels, the same masks. It ran in Triton there, and runs in NumPy here.
"""

from pathlib import Path

import numpy as np
import pytest

from tests.engine.harness import Engine
from tests.engine.sampling import cap_drafts, tiny_engine
from tests.engine.test_trace import PROMPTS, asked, recorded
from vllm_av.replay.options import chosen
from vllm_av.replay.replay import replay
from vllm_av.replay.stream import lay_out

SETTINGS = {"refit_interval": 7, "damping": 3.0, "initial_slope": 0.8, "initial_intercepts": 0.3}


def one_token_prompts(engine: Engine) -> None:
    """One after the other, while others run: vLLM grades each in its first step, as if drafts that
    it never had were rejected."""
    from vllm import SamplingParams

    core = engine.llm.llm_engine
    for number in range(40):
        (prompt,) = core.renderer.render_cmpl([{"prompt_token_ids": [number % 6]}])
        params = SamplingParams(temperature=0.7, max_tokens=12, seed=number, ignore_eos=True)
        core.add_request(f"one-{number}", prompt, params)
        core.step()
    while core.has_unfinished_requests():
        core.step()


@pytest.mark.parametrize("scorer", ["online_estimator", "pooled_estimator"])
def test_the_replay_says_what_the_engine_said(
    scorer: str, random_pair: tuple[str, str], tmp_path: Path
) -> None:
    where = {"trace": str(tmp_path / "t"), "exploration": 0}
    block = {"scorer": scorer, "estimator": SETTINGS, **where}
    engine = tiny_engine(random_pair, block=block)
    one_token_prompts(engine)
    cap_drafts(engine, 9, requests=len(PROMPTS))  # so that the budget censors labels
    asked(engine, rounds=6, presence_penalty=0.5)
    trace = recorded(engine, tmp_path / "t")
    settings = [f"estimator.{name}={value}" for name, value in SETTINGS.items()]
    learner = chosen(scorer, settings, trace)
    stream = lay_out(trace, learner.columns)
    predictions = replay(stream, learner)
    assert learner.state()["refits"] > 1
    np.testing.assert_allclose(predictions, trace["confidence"], atol=1e-4)
    # It did learn, some rows were masked, and some drafts were never seen.
    assert predictions.std() > 0.01
    assert 0.1 < trace.may_teach.mean() < 0.9
    assert trace["verified"].mean() < 0.9
