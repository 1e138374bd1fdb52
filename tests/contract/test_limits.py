"""What backends' constructors refuse, against the constructors of each supported vLLM."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.contract import limits_worker
from tests.contract.test_model_sources import code, modules
from tests.contract.vllm_source import NEWEST_OFTEN, plain_environment, tree_of
from tests.unit.preflight.backends.setups import group, setup
from vllm_av.drafters import SUPPORTED
from vllm_av.preflight.backends.rows import bars
from vllm_av.preflight.backends.table import TableCapabilities
from vllm_av.preflight.facts import LayerKind
from vllm_av.preflight.model import handed
from vllm_av.preflight.model.catalogue import RULES

CACHES = ("auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2")
LATER = ("num_splits", "use_alibi_sqrt")
"""What is met after construction."""


def constructed(version: str, on: str) -> list[tuple[str, str, str, str | None]]:
    """What vLLM says of each backend, cache, and what the layers are handed."""
    done = subprocess.run(
        [str(tree_of(version).parents[3] / "bin/python"), limits_worker.__file__],
        input=json.dumps({"gpu": on, "caches": CACHES}),
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={
            **plain_environment(),
            "VLLM_PLUGINS": "",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "VLLM_LOGGING_LEVEL": "CRITICAL",
            "VLLM_NO_USAGE_STATS": "1",
        },
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [tuple(each) for each in json.loads(done.stdout)]


@pytest.mark.parametrize("version", NEWEST_OFTEN)
@pytest.mark.parametrize(
    "on", ["sm80", *(pytest.param(on, marks=pytest.mark.full) for on in ("sm75", "sm90", "sm100"))]
)
def test_the_limits_are_what_constructors_refuse(version: str, on: str) -> None:
    met = 0
    for name, cache, field, told in constructed(version, on):
        kind = LayerKind.MLA if name == "TRITON_MLA" else LayerKind.FULL
        layers = group(kind, **({field: True} if field else {}))
        asked = setup(on, vllm=version, attention_backend=name, kv_cache_dtype=cache)
        answer = TableCapabilities(version).answer(asked, layers)
        found = next(each for each in answer.candidates if each.name == name)
        if "kv_cache_dtype not supported" in found.invalid:
            continue  # the selector knows it
        limits = [each.why for each in found.limits if not any(x in each.why for x in LATER)]
        why = (version, on, name, cache, field, told)
        if told is None:
            assert limits == [], why
        else:
            assert any(each in told for each in limits), why
            met += 1
    assert met >= 5


@pytest.mark.parametrize("version", SUPPORTED)
def test_the_words_of_what_is_met_later(version: str) -> None:
    tree = tree_of(version)
    mla = (tree / "v1/attention/backends/mla/flashinfer_mla.py").read_text()
    joined = "".join(mla.replace('"', "").split())
    (limit,) = bars.FLASHINFER_MLA
    assert "".join(limit.why.split()) in joined
    assert "decode.max_query_len > 1 and self.dcp_world_size == 1:" in mla
    flash = (tree / "vllm_flash_attn/flash_attn_interface.py").read_text()
    assert 'if num_splits > 1:\n            raise NotImplementedError("FA2 does not' in flash
    cpu = (tree / "v1/attention/backends/cpu_attn.py").read_text()
    assert bars.CPU[0].why in cpu
    attention = (tree / "model_executor/layers/attention/attention.py").read_text()
    assert "use_alibi_sqrt is not supported by backend" in attention
    segmented = (tree / "v1/attention/backends/rocm_segmented_attn.py").read_text()
    assert "GQA ratio 1-16" in segmented
    assert "does not support ALiBi." in segmented


@pytest.mark.parametrize("version", SUPPORTED)
def test_which_models_hand_their_layers_what(version: str) -> None:
    tree = tree_of(version)
    there = modules(tree)
    words = {
        "alibi_slopes=alibi_slopes": {*handed.ALIBI, "FalconForCausalLM"},
        "use_alibi_sqrt=True": set(handed.ALIBI_SQRT),
        "kv_sharing_target_layer_name=kv_sharing_target_layer_name": set(handed.SHARING),
        # transformers' code runs the last
        "logits_soft_cap=attn_logits_soft_cap": {*handed.CAPPED[:2], "Gemma3ForCausalLM"}
        | {"Rnj1ForCausalLM"},
    }
    own = {name: there[name] for name in RULES if there.get(name, "transformers") != "transformers"}
    for word, expected in words.items():
        found = {
            name
            for name, module in own.items()
            if not module.startswith("transformers") and word in code(tree, module)
        }
        assert found == expected, word
    for name in ("Gemma3ForCausalLM", "Rnj1ForCausalLM"):  # which hand on that there is no cap
        assert "attn_logits_soft_cap=None" in code(tree, there[name])
