"""What is recorded is what the engine did: the features of the logits that it drew from, its
verdicts, whose they were, and what only the target applied. And recording changes nothing.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest

from tests.engine import models
from tests.engine.drafters import TYPES, block
from tests.engine.harness import Engine
from tests.engine.sampling import TINY_STEPS, cap_drafts, tiny_engine
from tests.unit.replay.test_draft_features import plain
from vllm_av.errors import TraceError
from vllm_av.replay.draft_features import FEATURES
from vllm_av.replay.trace import Trace, read
from vllm_av.scorers.target_only import told

K = TINY_STEPS
PROMPTS = [[n % 8, 3 * n % 8, 5] for n in range(6)]
TEMPERATURES = (0.0, 0.01, 0.4, 0.7, 1.0, 1.3)
# Each speaks to scorers in a way of its own.
KINDS = (
    "EAGLE-3, few tokens", "MTP of modules", "MTP of Gemma 4", "DFlash2", "LiLiCorr",
    "DSpark, few tokens",
)  # fmt: skip


class Draft(NamedTuple):
    """A request's drafts, as the engine had them; ``[K]`` or of K rows."""

    request: str
    temperature: float
    logits: Any
    drawn: list[int]
    confidence: list[float]
    head: list[float] | None
    accepted: int
    verified: int
    masked: str | None


class Seen:
    """Takes down what vLLM hands to the recorder."""

    def __init__(self, engine: Engine) -> None:
        self.runner = engine.runner
        self.recorder = engine.scorer
        self.drafts: list[Draft] = []
        self.steps = 0
        self._by_slot: dict[tuple[int, int], tuple[Any, int]] = {}
        self._started: set[str] = set()
        self._heads: dict[int, list[float]] = {}
        self._temperature: dict[int, float] = {}
        self._confidence: dict[int, list[float]] = {}
        self._rows: list[int] = []

    def predict(self, logits: Any, idx: Any, step: Any, temperature: Any, *rest: Any) -> None:
        self.recorder.__class__.predict(self.recorder, logits, idx, step, temperature, *rest)
        drawn = rest[1]
        for row, slot in enumerate(idx.tolist()):
            place = int(step) if step.dim() == 0 else int(step[row])
            self._by_slot[slot, place] = logits[row].clone(), int(drawn[row])
            self._temperature[slot] = float(temperature[slot])
        self._rows = idx.tolist() if step.dim() == 0 else idx.tolist()[::K]
        self._keep(rest[0])

    def predict_block(self, hidden: Any, markov: Any, out: Any) -> None:
        self.recorder.__class__.predict_block(self.recorder, hidden, markov, out)
        speculator = self.runner.speculator
        head = speculator.get_confidence_head()(hidden, markov).view(-1, K)
        for slot, row in zip(self._rows, head.tolist(), strict=True):
            self._heads[slot] = row
        self._keep(out)

    def _keep(self, out: Any) -> None:
        for row, slot in enumerate(self._rows):
            self._confidence[slot] = out[row].tolist()

    def observe(self, idx: Any, sampled: Any, rejected: Any, bits: Any = None) -> None:
        self.recorder.__class__.observe(self.recorder, idx, sampled, rejected, bits)
        self.steps += 1
        for row, slot in enumerate(idx.tolist()):
            request = self.runner.req_states.index_to_req_id[slot]
            if not int(sampled[row]):
                continue
            if request not in self._started:  # the prompt has ended
                self._started.add(request)
                continue
            accepted = int(sampled[row]) - 1
            logits, drawn = zip(*(self._by_slot[slot, k] for k in range(K)), strict=True)
            self.drafts.append(
                Draft(
                    request,
                    self._temperature[slot],
                    logits,
                    list(drawn),
                    self._confidence[slot],
                    self._heads.get(slot),
                    accepted,
                    accepted + int(rejected[row]),
                    None if bits is None else told(int(bits[row])),
                )
            )


@contextmanager
def seen(engine: Engine) -> Iterator[Seen]:
    taken = Seen(engine)
    with mock.patch.multiple(
        engine.scorer,
        predict=taken.predict,
        predict_block=taken.predict_block,
        observe=taken.observe,
    ):
        yield taken


def asked(engine: Engine, rounds: int = 3, **constraints: Any) -> None:
    """Requests of many temperatures and lengths; slots are used again."""
    from vllm import SamplingParams

    for seed in range(rounds):
        params = [
            SamplingParams(
                temperature=temperature,
                max_tokens=6 + 3 * n,
                ignore_eos=True,
                seed=seed + n,
                **(constraints if n % 2 else {}),
            )
            for n, temperature in enumerate(TEMPERATURES)
        ]
        engine.generate([[*prompt, seed] for prompt in PROMPTS], params)


def recorded(engine: Engine, folder: Path) -> Trace:
    engine.scorer.close()
    trace = read(folder)
    assert trace.num_rows > 100
    return trace


def assert_the_same(trace: Trace, drafts: list[Draft]) -> None:
    """Each row of ``trace`` is what ``drafts`` say, in their order."""
    assert trace.num_rows == K * len(drafts)
    numbers: dict[str, int] = {}
    for number, draft in enumerate(drafts):
        rows = slice(K * number, K * (number + 1))
        assert set(trace["request"][rows]) == {numbers.setdefault(draft.request, len(numbers))}
        assert trace["position"][rows].tolist() == list(range(K))
        assert trace["accepted"][rows].tolist() == [k < draft.accepted for k in range(K)]
        assert trace["verified"][rows].tolist() == [k < draft.verified for k in range(K)]
        assert set(trace["temperature"][rows]) == {np.float32(draft.temperature)}
        np.testing.assert_allclose(trace["confidence"][rows], draft.confidence, atol=1e-6)
        if draft.head is not None:
            np.testing.assert_allclose(trace["head"][rows], draft.head, atol=1e-6)
        word = trace["masked"][K * number]
        assert (trace.words["masked"][word] if word >= 0 else None) == draft.masked
        for k in range(K):
            logits = draft.logits[k].float().numpy()
            wanted = plain(logits, draft.temperature, draft.drawn[k])
            found = [trace[name][K * number + k] for name in FEATURES]
            np.testing.assert_allclose(
                found, [wanted[name] for name in FEATURES], rtol=1e-5, atol=1e-4
            )


def test_what_is_recorded_is_what_the_engine_did(
    random_pair: tuple[str, str], tmp_path: Path
) -> None:
    engine = tiny_engine(random_pair, block={"trace": str(tmp_path / "t"), "exploration": 0})
    cap_drafts(engine, 9, requests=len(PROMPTS))
    with seen(engine) as taken, engine.recorded() as steps:
        asked(engine, top_k=3, presence_penalty=0.5)
        tokens = engine.greedy(PROMPTS, batch=len(PROMPTS))
    assert tokens == [models.greedy(random_pair[0], prompt) for prompt in PROMPTS]
    trace = recorded(engine, tmp_path / "t")
    assert_the_same(trace, taken.drafts)
    # Trimmed, and told so; what was admitted is what was verified, of those that had drafts.
    assert trace.info.censoring == "budget"
    assert trace["verified"].sum() == sum(sum(step.admitted) for step in steps)
    assert 0.1 < trace["verified"].mean() < 0.9
    # Many more requests than slots were in use, and some of them must not teach.
    assert len(set(trace["request"])) == 4 * len(PROMPTS)
    assert set(trace.words["masked"]) == {"top_k+penalties"}
    assert 0.1 < trace.may_teach.mean() < 0.9
    assert not trace.has("head")
    assert trace.info.scorer == "online_estimator"
    assert trace.info.method == "draft_model"
    assert trace.info.vocabulary == models.VOCABULARY
    assert trace.info.target == Path(random_pair[0]).name


@pytest.mark.parametrize("scorer", ["online_estimator", "max_probability"])
def test_with_full_exploration_no_label_is_missing(
    scorer: str, random_pair: tuple[str, str], tmp_path: Path
) -> None:
    where = {"scorer": scorer, "trace": str(tmp_path / "t"), "exploration": 1}
    engine = tiny_engine(random_pair, block=where)
    engine.price(0.1)  # by its own decision the budget would verify next to nothing
    with engine.recorded() as steps:
        asked(engine, rounds=1)
        tokens = engine.greedy(PROMPTS, batch=len(PROMPTS))
    assert tokens == [models.greedy(random_pair[0], prompt) for prompt in PROMPTS]
    trace = recorded(engine, tmp_path / "t")
    assert all(step.scheduled == step.admitted for step in steps)
    assert trace["verified"].sum() == sum(sum(step.scheduled) for step in steps)
    assert trace.info.censoring == "none"


@pytest.mark.parametrize("scorer", ["confidence_head", "online_estimator"])
def test_a_head_is_recorded_whether_or_not_it_is_in_force(scorer: str, tmp_path: Path) -> None:
    pair = block.dspark_with_head(tmp_path)
    where = {"scorer": scorer, "trace": str(tmp_path / "t"), "exploration": 0}
    engine = tiny_engine(pair, "dspark", block=where)
    cap_drafts(engine, 9, requests=len(PROMPTS))
    with seen(engine) as taken:
        asked(engine, rounds=2)
        tokens = engine.greedy(PROMPTS, batch=len(PROMPTS))
    assert tokens == [models.greedy(pair[0], prompt) for prompt in PROMPTS]
    trace = recorded(engine, tmp_path / "t")
    assert_the_same(trace, taken.drafts)
    assert np.isfinite(trace["head"]).all()
    same = np.allclose(trace["head"], trace["confidence"], atol=1e-6)
    assert same is (scorer == "confidence_head")


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_speculator(name: str, tmp_path: Path) -> None:
    """Over what the scorer is shown: candidates, or the tokens that the drafter knows."""
    kind = TYPES[name]
    where = {"trace": str(tmp_path / "t"), "exploration": 0}
    engine = tiny_engine(kind.make(tmp_path), kind.method, block=where)
    with seen(engine) as taken:
        asked(engine, rounds=2)
    trace = recorded(engine, tmp_path / "t")
    assert_the_same(trace, taken.drafts)
    assert trace.finite.all()


def test_a_trace_that_cannot_be_written_is_told_before_the_weights_are_loaded(
    random_pair: tuple[str, str], tmp_path: Path
) -> None:
    target, draft = random_pair
    bare = tmp_path / "without weights"
    bare.mkdir()
    shutil.copy(Path(draft, "config.json"), bare)
    (tmp_path / "t").write_text("in the way")
    with pytest.raises(TraceError, match=r"AV-TRACE-WRITE.* is not a folder"):
        tiny_engine((target, str(bare)), block={"trace": str(tmp_path / "t")})
