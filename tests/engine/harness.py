"""An engine of vLLM in this process, and what the tests ask of it.

Rule: vLLM runs as a user starts it; the tests reach inside only to set the cost tables, through
the manager's own method, and to record what was admitted.
"""

import atexit
import gc
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

# To be set before anything imports vllm, which reads some of these while it is imported.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN": "32",  # a short cost profile
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "1",
}
STEPS = 5  # drafts per request and step
TOKENS = 16  # of each greedy request

# Fixed cost of a step, in tokens per request; each token that it verifies costs 1. With a fixed
# cost c, drafts are worth verifying while their survival exceeds about 1 / (1 + c).
FIXED_COSTS = {"none": 1e15, "some": 8.0, "almost all": 0.6}

# An engine that is collected tears down the process group that all engines of a process share:
# all are kept, and those that have done their work give back their memory.
_kept_alive: list[Any] = []
_at_work: list["Engine"] = []


class Step(NamedTuple):
    """One verification: drafts per request, in the order of the batch."""

    scheduled: list[int]
    admitted: list[int]

    @property
    def ragged(self) -> bool:
        """Whether requests that had equally many drafts kept different numbers of them."""
        kept = {(s, a) for s, a in zip(self.scheduled, self.admitted, strict=True)}
        return any(s == t and a != b for s, a in kept for t, b in kept)


def release_engines() -> None:
    """Release all that nobody keeps."""
    while _at_work:
        _at_work.pop().release()


def speculation(
    draft: str,
    method: str,
    adaptive: bool,
    steps: int = STEPS,
    block: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A ``--speculative-config``; ``block`` is its ``adaptive_verification_config``."""
    spec = {
        "model": draft,
        "method": method,
        "num_speculative_tokens": steps,
        "draft_sample_method": "probabilistic",
        "enable_adaptive_verification": adaptive,
    }
    return spec if block is None else spec | {"adaptive_verification_config": block}


def engine_arguments(model: str, spec: dict[str, Any] | None, **changes: Any) -> dict[str, Any]:
    """What every engine of these tests has in common, as arguments of ``vllm.LLM``."""
    return {
        "model": model,
        "speculative_config": spec,
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": 256,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 512,
        "kv_cache_memory_bytes": 256 << 20,
        "enable_prefix_caching": False,
        "disable_log_stats": True,
        "generation_config": "vllm",
        "seed": 0,
    } | changes


class Engine:
    """``vllm.LLM`` with its core in this process."""

    def __init__(self, model: str, spec: dict[str, Any] | None, **changes: Any) -> None:
        from vllm import LLM, envs
        from vllm.model_executor.models import registry

        envs.disable_envs_cache()  # which an earlier engine has switched on
        try:
            # vLLM looks at each new class of models in a process of its own, so that no GPU is
            # touched: ten seconds each. There is none, and this process loads the class anyway.
            with mock.patch.object(registry, "_run_in_subprocess", lambda look: look()):
                self.llm = LLM(**engine_arguments(model, spec, **changes))
        except Exception as error:
            _kept_alive.append(error)  # whose traceback holds what there is of the engine
            raise
        _kept_alive.append(self.llm)
        # At the end of the process each engine collects all garbage twice, nearly a second. This
        # comes before that, as it was registered later; and Python itself collects once more.
        atexit.register(setattr, gc, "collect", lambda *_: 0)
        core = self.llm.llm_engine.engine_core.engine_core
        self.runner = core.model_executor.driver_worker.worker.model_runner
        _at_work.append(self)

    def keep(self) -> "Engine":
        """Leave it running beyond the file whose tests have started it."""
        _at_work.remove(self)
        return self

    def release(self) -> None:
        """Give back the memory of its weights and its KV cache; it cannot generate any more."""
        drafter = getattr(self.runner.speculator, "model", None)
        models = [self.runner.model] if drafter is None else [self.runner.model, drafter]
        for layer in (layer for model in models for layer in model.modules()):
            layer.__dict__.pop("cpu_linear", None)  # holds a copy of the weights, packed
            for weight in layer.parameters(recurse=False):
                weight.untyped_storage().resize_(0)
        for cache in self.runner.kv_caches:
            cache.untyped_storage().resize_(0)

    @property
    def adaptive(self) -> bool:
        """Whether adaptive verification is on."""
        return self.runner.adaptive_verification is not None

    @property
    def manager(self) -> Any:
        """vLLM's ``AdaptiveVerificationManager``."""
        assert self.runner.adaptive_verification is not None
        return self.runner.adaptive_verification

    @property
    def scorer(self) -> Any:
        """The scorer in force, behind its guard."""
        return self.runner.speculator.acceptance_scorer

    @property
    def estimator(self) -> Any:
        """This package's ``OnlineEstimator``, which must be in force."""
        assert self.scorer.name == "online_estimator"
        return self.scorer.scorer.estimator

    def new_scorer(self, **block: Any) -> Any:
        """A scorer for this engine by its ``adaptive_verification_config``, without its guard."""
        from vllm_av.config import parse_block
        from vllm_av.scorers.base import ScorerContext
        from vllm_av.scorers.build import build

        speculator = self.runner.speculator
        context = ScorerContext(
            num_speculative_steps=speculator.num_speculative_steps,
            max_num_reqs=speculator.max_num_reqs,
            device=speculator.device,
            has_draft_logits=True,
            confidence_head=None,
            config=parse_block(block),
        )
        return build(context)[0].scorer

    def greedy(
        self, prompts: Sequence[list[int]], batch: int, max_tokens: int = TOKENS
    ) -> list[list[int]]:
        """Tokens after each prompt, ``batch`` requests at a time, at temperature 0."""
        from vllm import SamplingParams

        params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
        tokens = []
        for first in range(0, len(prompts), batch):
            tokens += self.generate(prompts[first : first + batch], params)
        return tokens

    def generate(self, prompts: Sequence[list[int]], params: Any) -> list[list[int]]:
        """Token ids; ``params`` is one ``SamplingParams`` for all prompts or one for each."""
        requests = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = self.llm.generate(requests, params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    def price(self, fixed: float) -> None:
        """Let a step that verifies ``n`` tokens cost ``fixed + n``, and drafting nothing."""
        sizes = (1, self.runner.max_num_tokens)
        self.manager.set_cost_curves([(1, 0.0)], [(n, fixed + n) for n in sizes])

    @contextmanager
    def kept_cost_tables(self) -> Iterator[None]:
        tables = self.manager.cost_tables
        try:
            yield
        finally:
            self.manager.cost_tables = tables

    @contextmanager
    def recorded(self) -> Iterator[list[Step]]:
        """The verifications that happen inside the block."""
        steps: list[Step] = []
        bonus = self.manager.num_bonus_tokens
        prepare = self.runner.prepare_inputs

        def wrapped(scheduler_output: Any, *arguments: Any, **named: Any) -> Any:
            batch = prepare(scheduler_output, *arguments, **named)
            if scheduler_output.scheduled_spec_decode_tokens:
                admitted = batch.cu_num_logits.diff() - bonus
                steps.append(Step(batch.num_draft_tokens_per_req.tolist(), admitted.tolist()))
            return batch

        self.runner.prepare_inputs = wrapped
        try:
            yield steps
        finally:
            self.runner.prepare_inputs = prepare


@contextmanager
def logged_by(name: str) -> Iterator[list[logging.LogRecord]]:
    """What one logger says inside the block."""
    records: list[logging.LogRecord] = []

    def see(record: logging.LogRecord) -> bool:
        records.append(record)
        return True

    # No handler: vLLM takes those away when its first engine starts.
    logger = logging.getLogger(name)
    logger.addFilter(see)
    try:
        yield records
    finally:
        logger.removeFilter(see)


@contextmanager
def in_processes(model: str, spec: dict[str, Any] | None, **changes: Any) -> Iterator[Any]:
    """``vllm.LLM`` as vLLM starts it by default: its core, and more ranks, in processes."""
    from vllm import LLM, envs

    envs.disable_envs_cache()
    # This process has engines and threads, which no fork survives.
    settings = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
    with mock.patch.dict(os.environ, settings):
        llm = LLM(**engine_arguments(model, spec, **changes))
        try:
            yield llm
        finally:
            llm.llm_engine.engine_core.shutdown()


def greedy_tokens(llm: Any, prompts: Sequence[list[int]], max_tokens: int = TOKENS) -> Any:
    """Tokens after each prompt by a ``vllm.LLM``, all requests at once, at temperature 0."""
    from vllm import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
    requests = [{"prompt_token_ids": prompt} for prompt in prompts]
    outputs = llm.generate(requests, params, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def verified_share(steps: Sequence[Step]) -> float:
    """Drafts verified over drafts scheduled."""
    scheduled = sum(sum(step.scheduled) for step in steps)
    return sum(sum(step.admitted) for step in steps) / scheduled


def assert_trimmed(name: str, steps: list[Step]) -> None:
    """That the cost table ``name`` of ``FIXED_COSTS`` did what it is called."""
    share = verified_share(steps)
    if name == "none":
        assert share == 1.0
    elif name == "some":
        assert 0.2 < share < 0.9
    else:
        assert 0.0 < share < 0.25


def generate_elsewhere(
    arguments: dict[str, Any], prompts: list[list[int]], environment: dict[str, str]
) -> Any:
    """Which runner it was, and the greedy tokens, in a process with ``environment``."""
    result, _ = try_elsewhere(arguments, prompts, environment, temperatures=[0])
    assert result.pop("error") is None
    (result["tokens"],) = result["tokens"]
    return result


def try_elsewhere(
    arguments: dict[str, Any],
    prompts: list[list[int]],
    environment: dict[str, str],
    temperatures: list[float],
) -> tuple[Any, str]:
    """What ``generate.py`` finds for all prompts at one temperature after the other.

    Returns:
        Its result, and what the engine printed.
    """
    job = {"arguments": arguments, "prompts": prompts, "max_tokens": TOKENS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        run = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("generate.py")), str(path)],
            input=json.dumps(job | {"temperatures": temperatures}),
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert run.returncode == 0, run.stderr[-3000:]
        return json.loads(path.read_text()), run.stdout + run.stderr
