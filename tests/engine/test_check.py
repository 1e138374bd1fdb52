"""Every reason against adaptive verification at once, before any weight is read; or none, and the
engine serves with a fixed number of drafts."""

import copy
import dataclasses
import json
import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine import models
from tests.engine.checking import (
    FIXED,
    LOGGER,
    PROMPTS,
    arguments,
    codes,
    config,
    started,
    with_experts,
)
from tests.engine.harness import logged_by
from vllm_av.errors import RefusedError
from vllm_av.preflight.facts import Gpu

ARGMAX = {"use_local_argmax_reduction": True}
MASK = {"return_sampling_mask": True, "logprobs_mode": "processed_logprobs"}
MISTAKE = "AV-CONFIG-METHOD"
FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "AV-CHECK-LORA": ({}, {"enable_lora": True}),
    "AV-CHECK-PIPELINE": ({}, {"pipeline_parallel_size": 2}),
    "AV-CHECK-SAMPLING-MASK": ({}, MASK),
    "AV-CHECK-LOCAL-ARGMAX": (ARGMAX, {}),
    MISTAKE: ({"adaptive_verification_config": {"scorer": "confidence_head"}}, {}),
    "AV-CHECK-DRAFTER": ({"method": "ngram", "prompt_lookup_max": 3}, {}),
}
"""Code -> changes to the speculative config, and to the engine's arguments."""


@pytest.mark.parametrize("code", FAULTS)
def test_a_fault_is_refused_before_any_weight_is_read(
    code: str, weightless: tuple[str, str]
) -> None:
    from vllm import LLM

    spec, changes = FAULTS[code]
    with pytest.raises(RefusedError) as caught:
        LLM(**arguments(weightless, spec, **changes))
    assert codes(caught.value) == {code}
    head, line = str(caught.value).split("\n")
    assert head.startswith("[AV-CHECK-REFUSED] adaptive verification cannot run here, for one ")
    assert f"[{code}]" in line


def test_routed_experts_are_a_fault_of_a_model_that_has_some(
    weightless: tuple[str, str], tmp_path: Path
) -> None:
    changes = {"enable_return_routed_experts": True, "enable_prefix_caching": True}
    pair = with_experts(weightless[0], tmp_path), weightless[1]
    assert config(pair, {"enable_adaptive_verification": False}, **changes)
    with pytest.raises(RefusedError) as caught:
        config(pair, enable_lora=True, **changes)
    assert codes(caught.value) == {"AV-CHECK-ROUTED-EXPERTS", "AV-CHECK-LORA"}


def test_sharded_sampling_is_a_fault_in_the_vllm_that_cannot_have_it(
    weightless: tuple[str, str],
) -> None:
    sharded = {"enable_batch_sharded_sampling": True, "tensor_parallel_size": 2}
    if not vllm_version().startswith("0.32."):
        assert config(weightless, **sharded).speculative_config.enable_adaptive_verification
        return
    with pytest.raises(RefusedError) as caught:
        config(weightless, **sharded)
    assert codes(caught.value) == {"AV-CHECK-SHARDED-SAMPLING"}
    found = config(weightless, {"adaptive_verification_config": FIXED}, **sharded)
    assert found.parallel_config.enable_batch_sharded_sampling


def vllm_version() -> str:
    from vllm import __version__

    return __version__.partition("+")[0]


def test_a_check_that_fails_leaves_the_verdict_to_vllm(
    weightless: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm_av.preflight import engine

    def fails(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(engine, "reasons_of", fails)
    with logged_by(LOGGER) as records:
        assert config(weightless).speculative_config.enable_adaptive_verification
    assert [record.levelname for record in records] == ["ERROR"]
    assert records[0].exc_info is not None
    with pytest.raises(RefusedError) as caught:
        config(weightless, enable_lora=True)
    assert codes(caught.value) == {"AV-CHECK-LORA"}


@pytest.mark.parametrize("code", [None, *FAULTS])
def test_the_command_line_s_check_says_the_same(
    code: str | None, weightless: tuple[str, str]
) -> None:
    """The question of an engine, made of vLLM's config, and that of its flags are alike."""
    from vllm_av.preflight.backends.table import TableCapabilities
    from vllm_av.preflight.engine import setup_of
    from vllm_av.preflight.question import Question, ask
    from vllm_av.preflight.rules import judge

    spec, changes = FAULTS[code] if code else ({}, {})
    whole = arguments(weightless, spec, **changes)
    spec = whole.pop("speculative_config")
    flags = [whole.pop("model"), "--speculative-config", json.dumps(spec)]
    for name, value in whole.items():
        flag = name.replace("_", "-")
        if value is False:
            flags += [f"--no-{flag}"] if name == "enable_prefix_caching" else []
        else:
            flags += [f"--{flag}"] if value is True else [f"--{flag}", str(value)]
    asked = ask(Question(tuple(flags), gpu="cpu", environment={})).setup
    block = spec.pop("adaptive_verification_config", None)
    made = config(weightless, spec | {"enable_adaptive_verification": False}, **changes)
    made.speculative_config.enable_adaptive_verification = True
    made.speculative_config.adaptive_verification_config = block
    found = setup_of(made, Gpu("cpu", "cpu", 0, 0))
    for name in (
        *("vllm", "patched", "gpu", "attention_backend", "backend_per_kind", "cudagraph_mode"),
        *("max_capture_size", "max_num_seqs", "max_num_batched_tokens", "tensor_parallel_size"),
        *("pipeline_parallel_size", "data_parallel_size", "kv_cache_dtype", "block_size"),
    ):
        assert getattr(found, name) == getattr(asked, name), name
    assert found.target.groups == asked.target.groups
    assert found.target.dtype == asked.target.dtype
    told = [
        {reason.code for reason in judge(setup, TableCapabilities(setup.vllm)).reasons}
        for setup in (found, asked)
    ]
    assert told[0] == told[1]
    assert not code or code in told[0]


def test_without_a_fault_the_weights_are_missed(weightless: tuple[str, str]) -> None:
    with pytest.raises(RuntimeError, match="Cannot find any model weights"):
        started(weightless, {})


def test_five_faults_are_told_at_once(weightless: tuple[str, str]) -> None:
    from vllm import LLM

    spec, changes = ARGMAX, {"enable_lora": True, "pipeline_parallel_size": 2, **MASK}
    block = {"adaptive_verification_config": {"scorer": "confidence_head"}}
    with pytest.raises(RefusedError, match="for 5 reasons, below;") as caught:
        LLM(**arguments(weightless, spec | block, **changes))
    assert codes(caught.value) == set(FAULTS) - {"AV-CHECK-DRAFTER"}
    assert len(str(caught.value).split("\n")) == 6


@pytest.mark.usefixtures("alone")
def test_vllm_alone_tells_all_that_it_knows(weightless: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="cannot run with this configuration") as caught:
        config(weightless, ARGMAX, enable_lora=True, pipeline_parallel_size=2, **MASK)
    found = str(caught.value)
    for words in (
        "(1) Adaptive verification estimates per-position acceptance from the draft logits",
        "(2) Adaptive verification is not currently compatible with LoRA.",
        "(3) Adaptive verification is not currently compatible with pipeline parallelism.",
        "(4) sampling distribution replay with speculative decoding requires fixed verification ",
        "Mend these, or pass enable_adaptive_verification=false",
    ):
        assert words in found


def test_the_v1_runner_is_one_reason_among_others(
    weightless: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm import envs

    envs.disable_envs_cache()
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
    with pytest.raises(RefusedError) as caught:
        config(weightless, enable_lora=True)
    assert codes(caught.value) == {"AV-CHECK-RUNNER", "AV-CHECK-LORA"}
    # With a fixed number of drafts V1 serves them.
    found = config(weightless, {"adaptive_verification_config": FIXED})
    assert not found.use_v2_model_runner
    assert not found.speculative_config.enable_adaptive_verification


@pytest.mark.parametrize("code", sorted(set(FAULTS) - {MISTAKE}))
def test_a_fixed_k_hashes_as_one_that_was_asked_for(code: str, weightless: tuple[str, str]) -> None:
    spec, changes = copy.deepcopy(FAULTS[code])
    block = spec.setdefault("adaptive_verification_config", {})
    block.update(FIXED)
    found = config(weightless, spec, **changes)
    assert not found.speculative_config.enable_adaptive_verification
    assert found.speculative_config.adaptive_verification_config is None
    plain = {**spec, "enable_adaptive_verification": False}
    del plain["adaptive_verification_config"]
    asked = config(weightless, plain, **changes)
    assert found.compute_hash() == asked.compute_hash()


def test_a_mistake_in_the_block_is_no_reason_for_a_fixed_k(weightless: tuple[str, str]) -> None:
    from vllm_av.errors import ConfigError

    block = {"adaptive_verification_config": FIXED | {"scorer": "nobody"}}
    with pytest.raises(ConfigError, match="AV-CONFIG-SCORER"):
        config(weightless, block, enable_lora=True)
    # Nor is one that the drafter makes of it.
    block = {"adaptive_verification_config": FIXED | {"scorer": "confidence_head"}}
    with pytest.raises(RefusedError) as caught:
        config(weightless, block, enable_lora=True)
    assert codes(caught.value) == {MISTAKE, "AV-CHECK-LORA"}


def test_a_fixed_k_generates_what_one_that_was_asked_for_does(
    random_pair: tuple[str, str],
) -> None:
    spec = ARGMAX | {"draft_sample_method": "greedy", "num_speculative_tokens": 4}
    block = {"adaptive_verification_config": FIXED}
    with logged_by(LOGGER) as records:
        engine = started(random_pair, spec | block)
    (warning,) = [record for record in records if record.levelname == "WARNING"]
    assert "Adaptive verification is off, and 4 drafts" in warning.getMessage()
    assert "AV-CHECK-LOCAL-ARGMAX" in warning.getMessage()
    assert not engine.adaptive
    assert engine.scorer is None
    spec["enable_adaptive_verification"] = False
    asked = started(random_pair, spec)
    assert engine.greedy(PROMPTS, batch=8) == asked.greedy(PROMPTS, batch=8)
    assert engine.greedy(PROMPTS, batch=8) == [
        models.greedy(random_pair[0], prompt) for prompt in PROMPTS
    ]


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda found: pickle.loads(pickle.dumps(found)),
    "replace": dataclasses.replace,
    "draft": lambda found: dataclasses.replace(
        found, model_config=found.speculative_config.draft_model_config
    ),
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_of_a_config_gets_the_same_answer(
    way: str, weightless: tuple[str, str], count_judgements: list[Any]
) -> None:
    found = config(weightless)
    assert len(count_judgements) == 1
    other = COPIES[way](found)
    assert other.speculative_config.enable_adaptive_verification
    other._validate_adaptive_verification()
    # Only what is another config for this process is judged again.
    again = way in ("deepcopy", "pickle")
    assert len(count_judgements) == 1 + again
    off = config(weightless, {"adaptive_verification_config": FIXED}, enable_lora=True)
    assert not COPIES[way](off).speculative_config.enable_adaptive_verification


@pytest.fixture
def count_judgements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Each time that the rules are asked."""
    from vllm_av.preflight import engine

    asked: list[Any] = []
    judge = engine.reasons_of

    def counted(*args: Any) -> Any:
        asked.append(args)
        return judge(*args)

    monkeypatch.setattr(engine, "reasons_of", counted)
    return asked


def test_where_the_workers_are_elsewhere_nothing_is_refused(
    weightless: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray may place them on other GPUs than the front end's: each of them asks again."""
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    from vllm_av.preflight.backends.table import TableCapabilities
    from vllm_av.seams import check

    found = config(weightless, dtype="bfloat16")
    monkeypatch.setattr(found.parallel_config, "distributed_executor_backend", "ray")
    found.compilation_config.cudagraph_mode = CUDAGraphMode.FULL_AND_PIECEWISE
    monkeypatch.setattr("vllm.platforms.current_platform", _Cuda())
    monkeypatch.setattr(check, "_judged", None)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: False)
    logging.getLogger(LOGGER).setLevel(logging.INFO)
    with logged_by(LOGGER) as records:
        found._validate_adaptive_verification()
    assert "AV-CHECK-ELSEWHERE" in " ".join(record.getMessage() for record in records)
    # A worker has joined its group when it asks.
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    assert check.device(found) == Gpu("NVIDIA L4", "cuda", 8, 9)
    monkeypatch.setattr(check, "_answers", lambda *_: TableCapabilities(vllm_version()))
    found.attention_config.backend = AttentionBackendEnum.FLASH_ATTN  # FA2 on that GPU
    for on_unsupported in ("error", "fixed_k"):
        spec = found.speculative_config
        spec.adaptive_verification_config["on_unsupported"] = on_unsupported
        # As it arrives there.
        arrived = pickle.loads(pickle.dumps(found))
        if on_unsupported == "error":
            with pytest.raises(RefusedError) as caught:
                arrived._validate_adaptive_verification()
            assert codes(caught.value) == {"AV-CHECK-VARLEN"}
        else:
            arrived._validate_adaptive_verification()
            assert not arrived.speculative_config.enable_adaptive_verification


class _Cuda:
    """What is asked of vLLM's platform."""

    def is_cpu(self) -> bool:
        return False

    is_xpu = is_cpu

    def is_cuda(self) -> bool:
        return True

    is_cuda_alike = is_cuda

    def get_device_name(self) -> str:
        return "NVIDIA L4"

    def get_device_capability(self) -> Any:
        from vllm.platforms.interface import DeviceCapability

        return DeviceCapability(8, 9)
