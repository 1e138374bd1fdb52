"""Real engines for the tests of this folder, started once each and shared by all tests of a worker.

Rule: an engine runs in this process, float32, one thread, so that equal inputs give equal tokens;
a test that changes an engine's cost tables or methods puts them back.
"""

import os
import shutil

from tests.engine.harness import ENVIRONMENT

os.environ.update(ENVIRONMENT)

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.engine import models
from tests.engine.drafters import block
from tests.engine.harness import Engine, release_engines, speculation
from tests.engine.smoke import SMOKE
from vllm_av.demo.checkpoint import smollm2
from vllm_av.demo.drafter import carried
from vllm_av.demo.prompts import choose

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before the items are chosen by their markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing = set(SMOKE)
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.engine)
            # Warnings of vLLM's many dependencies are not this project's.
            item.add_marker(pytest.mark.filterwarnings("default"))
            name = item.nodeid.rpartition("/")[2]
            if name in SMOKE:
                item.add_marker(pytest.mark.smoke)
                missing.discard(name)
    if missing and config.option.markexpr == "smoke":
        raise pytest.UsageError(f"tests/engine/smoke.py names no test: {', '.join(missing)}")


@pytest.fixture(scope="module", autouse=True)
def memory() -> Iterator[None]:
    """What a file's engines held is free for the next file's."""
    yield
    release_engines()


@pytest.fixture(scope="session")
def target() -> str:
    return str(smollm2())


@pytest.fixture(scope="session")
def prompts(target: str) -> list[list[int]]:
    """Token ids of 8 real prompts, each a chat request: code, documentation, instructions."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(target)
    rendered = [
        tokenizer.apply_chat_template(p.messages, add_generation_prompt=True, tokenize=False)
        for p in choose(24)
    ]
    # Of mixed lengths, but not the longest: the prompts are read again in every test.
    return sorted((tokenizer.encode(text) for text in rendered), key=len)[:16:2]


@pytest.fixture(scope="session")
def start(target: str) -> Callable[..., Engine]:
    """``start(adaptive=True, max_num_batched_tokens=...)``: one engine for equal arguments.

    Without ``adaptive`` verification there is no speculation.
    """

    @cache
    def engine(adaptive: bool, max_num_batched_tokens: int = 512) -> Engine:
        spec = speculation(str(carried("eagle")), "eagle", True) if adaptive else None
        return Engine(target, spec, max_num_batched_tokens=max_num_batched_tokens).keep()

    return engine


@pytest.fixture(scope="session")
def expected(start: Callable[..., Engine], prompts: list[list[int]]) -> list[list[int]]:
    """Greedy tokens of the V2 runner without speculation, all requests at once."""
    return start(adaptive=False).greedy(prompts, batch=8)


@pytest.fixture
def adaptive(start: Callable[..., Engine]) -> Iterator[Engine]:
    """SmolLM2 with its EAGLE head and adaptive verification; its cost tables are put back."""
    engine = start(adaptive=True)
    with engine.kept_cost_tables():
        yield engine


@pytest.fixture(scope="session")
def constant_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Target p = (.5, .5) and drafter q = (.2, .8) after any text, over two live tokens."""
    root = tmp_path_factory.mktemp("constant")
    return (
        models.constant(root / "target", [0.5, 0.5]),
        models.constant(root / "draft", [0.2, 0.8]),
    )


@pytest.fixture(scope="session")
def random_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A random target over 8 tokens, and a drafter that is a noisy copy of it."""
    root = tmp_path_factory.mktemp("random")
    return models.random_pair(root)


@pytest.fixture(scope="session")
def headless(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A random target over 8 tokens, and a DSpark drafter without a confidence head."""
    return block.dspark(tmp_path_factory.mktemp("headless"))


@pytest.fixture(scope="session")
def weightless(
    random_pair: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str]:
    """The random pair without its weights."""
    root = tmp_path_factory.mktemp("weightless")
    for path in random_pair:
        shutil.copytree(
            path, root / Path(path).name, ignore=shutil.ignore_patterns("*.safetensors")
        )
    return str(root / "target"), str(root / "draft")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM without a checker of a plugin."""
    from vllm.config import adaptive_verification_check

    monkeypatch.setattr(adaptive_verification_check, "_checker", None)
