"""How fast the compiled kernels are; every figure is a ratio within one run, on one thread.

    compiled against Triton's interpreter   one decode step with speculation        at least 25x
    sampling against a forward pass         batch 32, K 7, vocabulary 49,152, T 1   at most 0.40

The forward pass stands in for the target's: the matrix products of SmolLM2-135M over 256 tokens in
bfloat16 by torch, without attention and norms.
"""

import os
import time
from collections.abc import Callable

os.environ["VLLM_LOGGING_LEVEL"] = "WARNING"

import pytest
import torch
import vllm.v1.worker.cpu.shm  # noqa: F401
from torch.nn.functional import linear, silu
from vllm.v1.worker.gpu import input_batch
from vllm.v1.worker.gpu.sample.gumbel import gumbel_sample
from vllm.v1.worker.gpu.spec_decode.acceptance_estimator import OnlineAcceptanceEstimator
from vllm.v1.worker.gpu.spec_decode.rejection_sampler import gather_draft_sampled
from vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils import rejection_sample

from vllm_av.cpu import install, interpreter
from vllm_av.cpu.launcher import Launcher

LAYERS, HIDDEN, INNER, KV = 30, 576, 1536, 192


def best(run: Callable[[], object], rounds: int) -> float:
    """Seconds of the fastest of several runs: other programs only ever add to it."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    install()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Step:
    """The sampling half of a decode step: what the drafter draws, and what the target accepts."""

    def __init__(self, requests: int, drafts: int, vocab: int) -> None:
        n = requests * (drafts + 1)
        self.requests, self.drafts = requests, drafts
        generator = torch.Generator().manual_seed(0)
        self.target = torch.randn(n, vocab, generator=generator)
        self.draft = torch.randn(requests, vocab, generator=generator)
        self.cache = self.draft.unsqueeze(1).repeat(1, drafts, 1)
        self.tokens = torch.randint(0, vocab, (n,), generator=generator)
        self.cu = torch.arange(0, n + 1, drafts + 1).int()
        self.rows = torch.arange(n)
        self.request = self.rows // (drafts + 1)
        self.local = (self.rows % (drafts + 1)).int()
        self.mapping = torch.arange(requests)
        self.temperature = torch.ones(requests)
        self.seed = torch.arange(requests)
        self.estimator = OnlineAcceptanceEstimator(requests, drafts, torch.device("cpu"))
        self.confidence = torch.zeros(requests, drafts)

    def sample_drafts(self) -> None:
        for k in range(self.drafts):
            gumbel_sample(
                self.draft,
                self.mapping,
                self.temperature,
                self.seed,
                self.mapping + k,
                apply_temperature=True,
                is_drafting=True,
                logits_cache=self.cache,
                logits_cache_col=torch.tensor(k),
            )

    def predict(self) -> None:
        for k in range(self.drafts):
            step = torch.tensor(k)
            self.estimator.predict(
                self.draft, self.mapping, step, self.confidence, self.temperature
            )

    def verify(self) -> tuple[torch.Tensor, torch.Tensor]:
        return rejection_sample(
            self.target,
            self.cache,
            self.tokens,
            self.cu,
            self.rows,
            self.mapping,
            self.request,
            self.local,
            self.temperature,
            self.seed,
            self.drafts,
        )

    def prepare(self) -> None:
        """The small kernels around them."""
        n = self.requests
        start, computed = self.cu, torch.full((n,), 20).int()
        prefill = torch.full((n,), 10).int()
        seq = torch.full((n,), 20 + self.drafts + 1).int()
        position = torch.zeros(len(self.rows), dtype=torch.int64)
        ids, tokens = torch.zeros(len(self.rows)).int(), torch.zeros(n, 64).int()
        input_batch.prepare_prefill_inputs(
            ids, torch.zeros(1, n).int(), self.mapping, start, tokens, prefill, computed
        )
        input_batch.prepare_pos_seq_lens(self.mapping, start, computed, position, seq)
        drafts = self.tokens[: n * self.drafts].view(n, self.drafts)
        last = torch.zeros(n, dtype=torch.int64)
        where = input_batch.combine_sampled_and_draft_tokens(
            ids, self.mapping, last, start, seq, prefill, drafts, self.cu, len(self.rows)
        )
        expanded, local = input_batch.expand_idx_mapping(
            self.mapping, len(self.rows), self.cu, self.drafts + 1
        )
        gather_draft_sampled(ids, position, where, expanded, local, prefill)

    def finish(self, sampled: torch.Tensor, count: torch.Tensor) -> None:
        """The small kernels after them."""
        n = self.requests
        seq, prefill = torch.full((n,), 28).int(), torch.full((n,), 10).int()
        count, rejected = input_batch.get_num_sampled_and_rejected(
            count, seq, self.cu, self.mapping, prefill
        )
        self.estimator.step(self.mapping, count, rejected)
        tokens = torch.zeros(n, 64).int()
        total, computed = torch.full((n,), 21).int(), torch.full((n,), 20).int()
        last = torch.zeros(n, dtype=torch.int64)
        input_batch.post_update(
            self.mapping, computed, last, None, sampled, count, rejected, self.cu, tokens, total
        )

    def run(self) -> None:
        """All of it."""
        self.prepare()
        self.finish(*self.verify())
        self.sample_drafts()
        self.predict()


def test_compiled_against_the_interpreter(benchmark, monkeypatch):
    step = Step(requests=4, drafts=3, vocab=4096)
    step.run()
    compiled = best(step.run, 20)
    benchmark.pedantic(step.run, rounds=10)
    with monkeypatch.context() as patch:
        patch.setattr(
            Launcher,
            "__call__",
            lambda self, grid, args, kwargs: interpreter.run(self.function, grid, args, kwargs),
        )
        interpreted = best(step.run, 2)
    ratio = interpreted / compiled
    benchmark.extra_info["compiled_ms"] = round(compiled * 1e3, 2)
    benchmark.extra_info["interpreted_ms"] = round(interpreted * 1e3, 1)
    benchmark.extra_info["interpreted_over_compiled"] = round(ratio, 1)
    benchmark.extra_info["bar"] = "at least 25"
    assert ratio >= 25


class Forward:
    """The matrix products of SmolLM2-135M over 256 tokens."""

    def __init__(self, tokens: int, vocab: int) -> None:
        shapes = [(HIDDEN + 2 * KV, HIDDEN), (HIDDEN, HIDDEN), (2 * INNER, HIDDEN), (HIDDEN, INNER)]
        self.weights = [
            [torch.randn(m, n, dtype=torch.bfloat16) * 0.02 for m, n in shapes]
            for _ in range(LAYERS)
        ]
        self.head = torch.randn(vocab, HIDDEN, dtype=torch.bfloat16) * 0.02
        self.x = torch.randn(tokens, HIDDEN, dtype=torch.bfloat16)

    def run(self) -> torch.Tensor:
        x = self.x
        for qkv, o, up, down in self.weights:
            x = x + linear(linear(x, qkv)[:, :HIDDEN], o)
            gate, value = linear(x, up).chunk(2, -1)
            x = x + linear(silu(gate) * value, down)
        return linear(x, self.head).float()


def test_sampling_against_the_forward_pass(benchmark):
    vocab = 49152
    step = Step(requests=32, drafts=7, vocab=vocab)
    forward = Forward(256, vocab)

    def sampling() -> None:
        step.sample_drafts()
        step.verify()

    sampling()
    forward.run()
    # By turns, so that both see the same machine.
    pairs = [(best(sampling, 2), best(forward.run, 2)) for _ in range(6)]
    sample, target = (min(p[k] for p in pairs) for k in (0, 1))
    benchmark.pedantic(sampling, rounds=5)
    benchmark.extra_info["sampling_ms"] = round(sample * 1e3, 1)
    benchmark.extra_info["forward_ms"] = round(target * 1e3, 1)
    benchmark.extra_info["sampling_over_forward"] = round(sample / target, 3)
    benchmark.extra_info["bar"] = "at most 0.40"
    assert sample / target <= 0.40
