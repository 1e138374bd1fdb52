"""The recorder around a scorer: what it keeps, whose it is, and that the scorer's word stands.

On a GPU the calls are replayed from a CUDA graph and the copies are asynchronous; the rows must be
those of the CPU. It is skipped where there is none.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vllm_av.replay.draft_features import FEATURES, draft_features
from vllm_av.replay.info import TraceInfo
from vllm_av.replay.recorder import RecordingScorer
from vllm_av.scorers.base import Scorer
from vllm_av.scorers.guard import GuardedScorer
from vllm_av.scorers.traits import traits_of

SLOTS, K, VOCABULARY = 6, 3, 11
GPU = pytest.param(
    "cuda",
    marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
)


class Top(Scorer):
    """The top probability at temperature 1."""

    needs_draft_logits = True

    def __init__(self) -> None:
        pass

    def predict(self, logits: Any, idx_mapping: Any, draft_step: Any, *rest: Any) -> None:
        _, out = rest
        rows = torch.arange(len(logits), device=logits.device)
        step = draft_step.long()
        if step.dim():
            rows = rows // out.shape[1]
        said = logits.float().softmax(-1).amax(-1)
        out[rows, step] = torch.where(idx_mapping >= 0, said, out[rows, step])


class Half(Scorer):
    """Half of what the head says."""

    needs_confidence_head = True

    def __init__(self, head: Callable[..., Any]) -> None:
        self.head = head

    def predict_block(self, hidden_states: Any, markov_embeds: Any, out: Any) -> None:
        out.copy_(self.head(hidden_states, markov_embeds).view_as(out) / 2)


class Kept:
    """In the place of a writer."""

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []
        self.info = TraceInfo(num_speculative_tokens=K, censoring="none")
        self.failure: Exception | None = None

    def add(self, block: dict[str, Any], words: Any) -> None:
        self.blocks.append(block)

    def close(self) -> None:
        pass

    def column(self, name: str) -> Any:
        return np.concatenate([block[name] for block in self.blocks])


def head(hidden: Any, markov: Any) -> Any:
    return (hidden.sum(-1) + markov.sum(-1)).sigmoid()


def recording(
    scorer: Any, device: str, *, with_head: bool = False, writer: Any = None, censored: Any = None
) -> RecordingScorer:
    guarded = GuardedScorer("mine", scorer, traits_of("mine", scorer))
    return RecordingScorer(
        guarded,
        SLOTS,
        K,
        torch.device(device),
        head if with_head else None,
        writer,
        censored or (lambda: False),
    )


def drawn_logits(seed: int, rows: int, device: str) -> Any:
    return (
        torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)).to(device) * 3
    )


class Engine:
    """Drafts and grades as vLLM does, for a batch whose last row is padding."""

    def __init__(
        self, recorder: RecordingScorer, slots: list[int], device: str, block: bool
    ) -> None:
        n = len(slots) + 1
        self.recorder, self.block, self.slots = recorder, block, slots
        self.idx = torch.tensor([*slots, -1], device=device)
        self.temperature = torch.tensor([0.0, 0.5, 1.0, 0.01, 1.3, 0.7], device=device)
        self.out = torch.zeros(SLOTS, K, device=device)
        self.logits = torch.zeros(K, n, VOCABULARY, device=device)
        self.drawn = torch.zeros(K, n, dtype=torch.int64, device=device)
        self.hidden = torch.zeros(n * K, 2, device=device)
        self.steps = torch.arange(K, device=device)
        self.graph: Any = None
        self.device = device

    def draft(self, seed: int) -> None:
        self.logits.copy_(drawn_logits(seed, K * len(self.idx), self.device).view_as(self.logits))
        self.drawn.copy_(self.logits.argsort(-1)[..., seed % VOCABULARY])
        self.hidden.copy_(drawn_logits(seed, len(self.hidden), self.device)[:, :2])
        if self.device == "cuda" and self.graph is None:
            self._calls()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._calls()
        if self.graph is not None:
            self.graph.replay()
        else:
            self._calls()

    def _calls(self) -> None:
        recorder = self.recorder
        if self.block:
            by_request = (self.logits.transpose(0, 1).flatten(0, 1), self.drawn.T.flatten())
            idx = self.idx.repeat_interleave(K)
            step = self.steps.repeat(len(self.idx))
            recorder.predict(by_request[0], idx, step, self.temperature, self.out, by_request[1])
        else:
            for k in range(K):
                recorder.predict(
                    self.logits[k],
                    self.idx,
                    self.steps[k],
                    self.temperature,
                    self.out,
                    self.drawn[k],
                )
        if recorder.needs_confidence_head:
            recorder.predict_block(self.hidden, self.hidden, self.out[: len(self.idx)])

    def grade(self, sampled: list[int], rejected: list[int], bits: list[int] | None = None) -> None:
        def ints(values: list[int]) -> Any:
            return torch.tensor(values, dtype=torch.int32, device=self.device)

        masks = None if bits is None else ints(bits)
        self.recorder.observe(ints(self.slots), ints(sampled), ints(rejected), masks)


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("block", [False, True])
def test_the_rows_are_those_of_the_drafts(block: bool, device: str) -> None:
    writer = Kept()
    recorder = recording(Top(), device, writer=writer)
    slots = [4, 0, 2]
    engine = Engine(recorder, slots, device, block)
    for slot in slots:
        recorder.add_request(slot)
    engine.grade([1, 1, 1], [0, 0, 0])
    wanted: dict[str, list[Any]] = {name: [] for name in (*FEATURES, "confidence", "temperature")}
    for seed in range(20):  # more than are under way at once
        engine.draft(seed)
        engine.grade([1 + seed % 4, 4, 1], [seed % 4 and 3 - seed % 4, 0, 3], [0, 0, 1])
        for row, slot in enumerate(slots):
            temperature = engine.temperature[slot].expand(K)
            features = draft_features(engine.logits[:, row], temperature, engine.drawn[:, row])
            for name, values in zip(FEATURES, features.T.tolist(), strict=True):
                wanted[name] += values
            wanted["confidence"] += engine.out[row].tolist()
            wanted["temperature"] += temperature.tolist()
    recorder.close()
    for name, values in wanted.items():
        np.testing.assert_allclose(writer.column(name), values, rtol=1e-5, atol=1e-6, err_msg=name)
    assert writer.column("request").tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2] * 20
    assert writer.column("masked").tolist() == [-1] * 3 * 2 + [0] * 3 + ([-1] * 6 + [0] * 3) * 19
    assert np.isnan(writer.column("head")).all()


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("scorer", [Top(), Half(head)])
def test_a_head_is_kept_beside_what_the_scorer_says(scorer: Any, device: str) -> None:
    writer = Kept()
    recorder = recording(scorer, device, with_head=True, writer=writer)
    engine = Engine(recorder, [3, 1], device, False)
    for slot in (3, 1):
        recorder.add_request(slot)
    engine.grade([1, 1], [0, 0])
    engine.draft(1)
    engine.grade([4, 4], [0, 0])
    recorder.close()
    said = head(engine.hidden, engine.hidden).view(-1, K)[:2].flatten().tolist()
    np.testing.assert_allclose(writer.column("head"), said, rtol=1e-6)
    # What reaches vLLM is the scorer's, and that is what is recorded.
    of_scorer = engine.out[:2].flatten().tolist()
    np.testing.assert_allclose(writer.column("confidence"), of_scorer, rtol=1e-6)
    if isinstance(scorer, Half):
        np.testing.assert_allclose(of_scorer, np.array(said) / 2, rtol=1e-6)
    else:
        top = engine.logits.softmax(-1).amax(-1).T[:2].flatten().tolist()
        np.testing.assert_allclose(of_scorer, top, rtol=1e-6)


def test_the_scorer_is_not_handed_the_drawn_tokens() -> None:
    handed: list[Any] = []
    scorer = Top()
    scorer.predict = lambda *arguments: handed.append(arguments)  # type: ignore[method-assign]
    recorder = recording(scorer, "cpu", writer=Kept())
    Engine(recorder, [0], "cpu", False).draft(0)
    assert [len(arguments) for arguments in handed] == [5] * K
    assert recorder.needs_drawn_tokens
    assert not recorder.traits.lossy


def test_a_rank_that_does_not_write_asks_for_the_same_and_keeps_nothing() -> None:
    silent = recording(Top(), "cpu", with_head=True, writer=None)
    loud = recording(Top(), "cpu", with_head=True, writer=Kept())
    for need in ("needs_draft_logits", "needs_drawn_tokens", "needs_confidence_head"):
        assert getattr(silent, need) is getattr(loud, need) is True
    first, second = Engine(silent, [2], "cpu", False), Engine(loud, [2], "cpu", False)
    for engine in (first, second):
        engine.recorder.add_request(2)
        engine.draft(3)
        engine.grade([1], [2])
        engine.recorder.close()
    assert torch.equal(first.out, second.out)


def test_positions_that_are_not_drafted_anew_are_no_rows() -> None:
    writer = Kept()
    recorder = recording(Top(), "cpu", writer=writer)
    engine = Engine(recorder, [0], "cpu", False)
    recorder.add_request(0)
    engine.grade([1], [0])
    engine.draft(0)
    engine.grade([1], [3])
    full = engine.steps
    engine.steps = full[:2]
    for k in range(2):
        recorder.predict(
            engine.logits[k], engine.idx, full[k], engine.temperature, engine.out, engine.drawn[k]
        )
    engine.grade([1], [2])
    assert writer.column("position").tolist() == [0, 1, 2, 0, 1]


def test_censoring_is_told_from_the_step_on_that_trims() -> None:
    writer = Kept()
    trimmed = SimpleNamespace(yes=False)
    recorder = recording(Top(), "cpu", writer=writer, censored=lambda: trimmed.yes)
    engine = Engine(recorder, [0], "cpu", False)
    engine.grade([1], [0])
    assert writer.info.censoring == "none"
    trimmed.yes = True
    engine.grade([1], [0])
    trimmed.yes = False
    engine.grade([1], [0])
    assert writer.info.censoring == "budget"


def test_a_recording_that_has_failed_leaves_the_scorer_at_work() -> None:
    writer = Kept()
    seen: list[Any] = []
    scorer = Top()
    scorer.observe = lambda *arguments: seen.append(arguments)  # type: ignore[method-assign]
    recorder = recording(scorer, "cpu", writer=writer)
    engine = Engine(recorder, [0], "cpu", False)
    writer.failure = OSError("full")
    engine.draft(0)
    engine.grade([1], [3])
    assert len(seen) == 1
    assert writer.blocks == []
