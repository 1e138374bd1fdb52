"""What the estimator learns inside an engine is what its NumPy reference learns from the same.

The reference is given the logits that the drafter drew from and the target's verdicts, with N,
damping and start values that are not the defaults, and must come to the same coefficients: for
``LLM(...)``, and for ``vllm serve`` over HTTP.
"""

import importlib.util
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine import models
from tests.engine.harness import Engine, speculation
from tests.engine.sampling import TINY_STEPS, tiny_engine
from tests.engine.server import Server, serving
from tests.packages import expose, python_path
from vllm_av.estimator.settings import MIXED, EstimatorSettings
from vllm_av.estimator.tempered.reference import TemperedReference

RECORDER = Path(__file__).with_name("stream_recorder")
NUMBERS: dict[str, Any] = {
    "refit_interval": 6,
    "damping": 25.0,
    "memory": 200.0,
    "initial_slope": 0.9,
    "initial_intercepts": (0.4, 0.0, -0.3),
}
BLOCK = {
    "scorer": "online_estimator",
    "estimator": NUMBERS | {"initial_intercepts": [0.4, 0.0, -0.3]},
}
SLOTS = 256
TOLERANCE = 1e-4

spec = importlib.util.spec_from_file_location("stream_recorder", RECORDER / "stream_recorder.py")
assert spec is not None
assert spec.loader is not None
stream_recorder = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stream_recorder)


def assert_reference_learns_the_same(rounds: list[Any]) -> None:
    """Replay the calls; compare each prediction, and the coefficients after each round."""
    replay(rounds, NUMBERS)
    # And the comparison would notice a number that did not arrive.
    for name in ("damping", "memory", "initial_slope", "initial_intercepts"):
        default = getattr(MIXED, name)
        with pytest.raises(AssertionError, match="Mismatched elements"):
            replay(rounds, NUMBERS | {name: default})


def replay(rounds: list[Any], numbers: dict[str, Any]) -> None:
    reference = TemperedReference(EstimatorSettings(**numbers), SLOTS, TINY_STEPS)
    labels = 0
    for calls, state in rounds:
        for name, arguments in calls:
            if name == "observe":
                labels += int((arguments[1] > 1).sum() + (arguments[2] > 0).sum())
                reference.observe(*arguments)
                continue
            *inputs, seen = arguments
            out = np.full_like(seen, np.nan)
            reference.predict(*inputs, out)
            written = ~np.isnan(out)
            np.testing.assert_allclose(seen[written], out[written], atol=TOLERANCE)
        assert reference.refits == state["refits"]
        by_knot = np.concatenate([state["slopes"], state["levels"][:, None]], axis=1)
        found = np.concatenate([by_knot.ravel(), state["intercepts"]])
        np.testing.assert_allclose(found, reference.coefficients, atol=TOLERANCE)
    assert labels > 100
    assert reference.refits >= 2
    assert abs(reference.coefficients - reference.start).max() > 0.02
    assert len(rounds) >= 5


@pytest.fixture
def engine(random_pair: tuple[str, str]) -> Engine:
    return tiny_engine(random_pair, block=BLOCK)


def test_inside_an_engine(engine: Engine) -> None:
    from vllm import SamplingParams

    rounds: list[Any] = []
    stream_recorder.record(engine.estimator, rounds.append)
    for seed in range(3):  # slots are used again, by requests at other temperatures
        params = [
            SamplingParams(
                temperature=temperature, max_tokens=8 + 3 * n, ignore_eos=True, seed=seed + n
            )
            for n, temperature in enumerate([0.0, 0.4, 1.0, 1.0, 1.7, 0.7])
        ]
        engine.generate([[n, seed, 5] for n in range(6)], params)
    assert_reference_learns_the_same(rounds)


@pytest.fixture(scope="module")
def recorded(
    random_pair: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Path]]:
    """A server whose estimator is recorded, and the file of the record."""
    root = tmp_path_factory.mktemp("recorded")
    target, draft = random_pair
    models.tokenizer(Path(target))
    config = json.dumps(speculation(draft, "draft_model", True, TINY_STEPS, BLOCK))
    arguments = [
        *("serve", target, "--speculative-config", config, "--dtype", "float32"),
        *("--enforce-eager", "--max-model-len", "32", "--max-num-seqs", str(SLOTS)),
        *("--max-num-batched-tokens", "4096", "--kv-cache-memory-bytes", str(64 << 20)),
        *("--served-model-name", "tiny", "--generation-config", "vllm"),
    ]
    environment = {
        "PYTHONPATH": python_path(expose(RECORDER, root / "dist")),
        stream_recorder.FILE: str(root / "stream"),
    }
    with serving(arguments, environment, root / "log") as server:
        yield server, root / "stream"


def test_over_http(recorded: tuple[Server, Path]) -> None:
    server, path = recorded

    def ask(number: int) -> Any:
        return server.post(
            "/v1/completions",
            {
                "model": "tiny",
                "prompt": [number % 8, 3 * number % 8, 5],
                "max_tokens": 8 + 2 * (number % 6),
                "temperature": [0.0, 0.4, 1.0, 1.7][number % 4],
                "seed": number,
                "ignore_eos": True,
            },
        )

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, range(24)))
    assert all(answer["usage"]["completion_tokens"] >= 8 for answer in answers)
    assert_reference_learns_the_same(stream_recorder.read(path))
