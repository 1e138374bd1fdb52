"""The keys of a speculative config are read as vLLM reads them, and no other is taken."""

from typing import Any

import pytest

from vllm_av.drafters import SUPPORTED
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.spec_keys import COMMON, OWN, as_vllm_reads


def read(key: str, value: object, version: str = "0.33.0") -> Any:
    return as_vllm_reads({key: value}, version)[key]


def mistake(spec: dict[str, object], version: str = "0.33.0") -> str:
    with pytest.raises(CheckError) as raised:
        as_vllm_reads(spec, version)
    assert raised.value.code is Code.QUESTION_SPEC
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 1000
    return str(raised.value)


@pytest.mark.parametrize(
    ("key", "value", "read_as"),
    [
        ("num_speculative_tokens", "4", 4),
        ("num_speculative_tokens", " 4.0 ", 4),
        ("num_speculative_tokens", 3.0, 3),
        ("num_speculative_tokens", True, 1),
        ("parallel_drafting", "yes", True),
        ("use_local_argmax_reduction", 1, True),
        ("use_heterogeneous_vocab", "off", False),
        ("enforce_eager", None, None),
        ("max_model_len", "10", 10),
        ("draft_load_config", {"load_format": "dummy"}, {"load_format": "dummy"}),
        ("target_model_config", 7, 7),
    ],
)
def test_a_value_is_what_vllm_takes_it_for(key: str, value: object, read_as: object) -> None:
    found = read(key, value)
    assert found == read_as
    assert type(found) is type(read_as)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("draft_sample_method", "x", "greedy or probabilistic"),
        ("draft_sample_method", None, "greedy or probabilistic"),
        ("draft_sample_method", ["greedy"], "greedy or probabilistic"),
        ("parallel_drafting", "x", "true or false"),
        ("parallel_drafting", None, "true or false"),
        ("parallel_drafting", 2, "true or false"),
        ("num_speculative_tokens", None, "a whole number of drafts"),
        ("num_speculative_tokens", "9" * 5000, "a whole number of drafts"),
        ("method", 0, "a string; correct it, or remove method"),
        ("model", ["x"], "a string; correct it, or remove model"),
        ("max_model_len", 0, "from 1 on"),
        ("tensor_parallel_size", 2, "draft_tensor_parallel_size"),
        ("moe_backend", "nosuch", "one of auto, triton"),
        ("draft_load_config", "x", "an object"),
        ("num_spec_tokens", 3, "write num_speculative_tokens"),
        ("Draft_Sample_Method", "greedy", "write draft_sample_method"),
        ("zzz\n" * 1000, 3, "remove it"),
        ("use_heterogeneous_vocab\n", True, "write use_heterogeneous_vocab"),
    ],
)
def test_what_vllm_refuses_is_one_line(key: str, value: object, said: str) -> None:
    assert said in mistake({key: value})


def test_a_key_of_another_version_is_told_as_one() -> None:
    assert read("fly_window_size", 2) == 2
    assert 'the key "fly_window_size", which is vLLM 0.33.0\'s' in mistake(
        {"fly_window_size": 2}, "0.32.0"
    )
    assert read("rejection_sample_method", "fly") == "fly"
    assert "standard, synthetic or block" in mistake({"rejection_sample_method": "fly"}, "0.32.0")


def test_this_packages_own_keys_are_left_to_the_rules() -> None:
    ours: dict[str, object] = {
        "adaptive_verification_config": 7,
        "adaptive_verification_confg": {},
        "enable_adaptive_verfication": "x",
    }
    assert as_vllm_reads(ours, "0.33.0") == ours


def test_keys_that_do_not_fit_each_other() -> None:
    synthetic: dict[str, object] = {"rejection_sample_method": "synthetic"}
    one, both = {"synthetic_acceptance_length": 2}, {"synthetic_acceptance_rates": [0.5]}
    assert "with no rates" in mistake(synthetic)
    assert "rejection_sample_method is standard, with synthetic_acceptance_length" in mistake(
        {**one}
    )
    assert " and " in mistake({**synthetic, **one, **both})
    assert as_vllm_reads({**synthetic, **one}, "0.33.0")["synthetic_acceptance_length"] == 2.0
    mixed = {"use_heterogeneous_vocab": True, "draft_sample_method": "probabilistic"}
    assert "sampled greedily" in mistake(mixed)


def test_every_supported_version_has_its_row() -> None:
    assert tuple(OWN) == SUPPORTED
    assert "moe_backend" not in COMMON
