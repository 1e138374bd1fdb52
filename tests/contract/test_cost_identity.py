"""A cost table says the same of its engine at every look, whatever layers do to a config."""

from types import SimpleNamespace
from typing import Any

import pytest

from vllm_av.budget.costs.identity import FIELDS, differences
from vllm_av.preflight.facts import Gpu
from vllm_av.seams import cost_table

CPU = Gpu("cpu", "cpu", 0, 0)


def config(cache_dtype: str) -> Any:
    """As far as the identity reads vLLM's config."""
    spec = SimpleNamespace(
        adaptive_verification_config={"budget": {"cost_table_path": "costs.json"}},
        num_speculative_tokens=5,
        draft_tensor_parallel_size=1,
        draft_model_config=None,
    )
    models = dict.fromkeys(list(FIELDS)[: list(FIELDS).index("num_speculative_tokens")], "x")
    cost_table._models[id(spec)] = (spec, models)
    return SimpleNamespace(
        speculative_config=spec,
        cache_config=SimpleNamespace(cache_dtype=cache_dtype),
        model_config=SimpleNamespace(max_model_len=64),
        compilation_config=SimpleNamespace(cudagraph_mode=SimpleNamespace(name="NONE"), mode=0),
        scheduler_config=SimpleNamespace(max_num_seqs=4, max_num_batched_tokens=64),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=1,
            prefill_context_parallel_size=1,
            decode_context_parallel_size=1,
            enable_expert_parallel=False,
            data_parallel_size=1,
            data_parallel_rank=0,
            node_rank_within_dp=0,
        ),
    )


def start(engine: Any, built_as: str) -> tuple[Any, Any, Any]:
    """The three looks; layers turn the cache's type into ``built_as``, the draft's into another."""
    first = cost_table.at_start(engine, CPU)
    engine.cache_config.cache_dtype = built_as
    layers = cost_table.at_layers(engine, CPU, {})
    engine.cache_config.cache_dtype = "the draft's"
    return first, layers, cost_table.at_profiling(engine, [1, 2])


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_table, "_models", {})
    monkeypatch.setattr(cost_table, "_built", dict(cost_table._built))


def test_a_cache_type_that_the_layers_choose_fits_at_the_next_start() -> None:
    *_, written = start(config("fp8"), "fp8_ds_mla")
    assert written["kv_cache_dtype"] == "fp8_ds_mla"
    for look in start(config("fp8"), "fp8_ds_mla"):
        assert differences(written, look) == []


def test_another_cache_type_is_told_before_the_weights() -> None:
    *_, written = start(config("fp8"), "fp8_ds_mla")
    _, layers, _ = start(config("auto"), "bfloat16")
    assert differences(written, layers) == [
        'kv_cache_dtype is "fp8_ds_mla" there and "bfloat16" here'
    ]


def test_skipped_padding_is_compared_at_the_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    *_, written = start(config("auto"), "auto")
    monkeypatch.setenv("VLLM_MOE_SKIP_PADDING", "0")
    first, *_ = start(config("auto"), "auto")
    assert differences(written, first) == ["moe_skip_padding is true there and false here"]
