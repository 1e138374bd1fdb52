"""Names of backends and cache types: vLLM's are taken, and what is not known of one is unknown."""

from dataclasses import replace

import pytest

from tests.unit.preflight.rules.cases import FEW, Case
from tests.unit.preflight.rules.conftest import Check
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.facts import LayerGroup, LayerKind
from vllm_av.preflight.reasons import ReasonCode, Verdict, Weight
from vllm_av.preflight.rules.groups import describe
from vllm_av.preflight.vocabulary import backends, cache_types

U = Weight.UNKNOWN


@pytest.mark.parametrize(
    "name", ["CUSTOM", "CUTLASS_MSA", "flashmla_mega_attn_dsv41", "TRITON_MSA"]
)
def test_a_backend_without_a_row_is_unknown(name: str, checked: Check) -> None:
    answer = checked(Case("unknown", (), U, (*FEW, "--attention-backend", name)))
    assert [(each.code, each.weight) for each in answer.reasons] == [(ReasonCode.MODEL, U)]
    assert name.upper() in answer.reasons[0].asked
    assert answer.verdict is Verdict.UNKNOWN


def test_so_is_one_that_is_named_for_the_drafter_alone(checked: Check) -> None:
    answer = checked(Case("unknown", (), U, spec={"attention_backend": "CUSTOM"}))
    (reason,) = answer.reasons
    assert (reason.code, reason.weight) == (ReasonCode.MODEL, U)
    assert reason.asked.startswith("the drafter's 1 layer of full attention through CUSTOM")
    assert "attention_backend" in reason.where


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (("--attention-backend", "FLASH_ATN"), "write FLASH_ATTN"),
        # The name of a class, which no option takes.
        (("--attention-backend", "XPU_FLASH_ATTN_MLA"), "write FLASH_ATTN_MLA"),
        (("--kv-cache-dtype", "fp8_e4m4"), "write fp8_e4m3"),
        (("--kv-cache-dtype", "nonsense"), "remove it for the model's own"),
    ],
)
def test_a_name_that_vllm_does_not_know_is_a_wrong_question(
    words: tuple[str, str], fix: str, checked: Check
) -> None:
    with pytest.raises(CheckError) as caught:
        checked(Case("wrong", (), U, (*FEW, *words)))
    assert caught.value.code is Code.QUESTION_FLAG
    assert words[0] in str(caught.value)
    assert fix in str(caught.value)


@pytest.mark.parametrize("key", ["attention_backend", "kv_cache_dtype"])
def test_so_is_one_of_the_drafter(key: str, checked: Check) -> None:
    with pytest.raises(CheckError) as caught:
        checked(Case("wrong", (), U, spec={key: "nonsense"}))
    assert caught.value.code is Code.QUESTION_SPEC
    assert f"{key} in the speculative config" in str(caught.value)


def test_names_are_those_of_the_version(checked: Check) -> None:
    octave = (*FEW, "--kv-cache-dtype", "octave_k3v4")
    with pytest.raises(CheckError):
        checked(Case("old", (), U, octave, installed=("0.32.0", "applied")))
    assert checked(Case("new", (), U, octave)).asked.setup.kv_cache_dtype == "octave_k3v4"
    assert set(backends("0.33.0")) - set(backends("0.32.0"))
    assert "octave_k3v4" not in cache_types("0.32.0")


def test_of_another_vllm_no_name_is_wrong(checked: Check) -> None:
    args = (*FEW, "--attention-backend", "NEWEST_ATTN", "--kv-cache-dtype", "fp2")
    answer = checked(Case("another", (), U, args, installed=("0.35.0", "unsupported")))
    assert answer.verdict is not Verdict.YES
    assert ReasonCode.VERSION in {each.code for each in answer.reasons}


def test_layers_of_the_models_own_are_told_by_their_backend() -> None:
    own = LayerGroup(LayerKind.OTHER, 43, 512, 64, 1, "layers", backend="DEEPSEEK_SPARSE_SWA")
    assert describe(own) == "43 layers of the model's own (DEEPSEEK_SPARSE_SWA)"
    assert describe(replace(own, count=1, backend=None)) == "1 layer of the model's own"


def test_a_wrapper_without_graphs_replays_nothing(checked: Check) -> None:
    answer = checked(Case("chunks", (), U, target="llama-4-scout", gpu="b200"))
    chunks = [each for each in answer.reasons if "chunked" in each.asked]
    assert chunks
    assert all("replay nothing" in each.found for each in chunks)


def test_the_limit_on_drafts_is_said_to_be_ours(checked: Check) -> None:
    with pytest.raises(CheckError, match="the limit of this package"):
        checked(Case("many", (), U, spec={"num_speculative_tokens": 1025}))
