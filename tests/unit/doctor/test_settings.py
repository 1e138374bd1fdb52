"""Which variables are shown, and that no secret is."""

import pytest

from vllm_av.doctor.settings import HIDDEN, settings, shown


def test_only_what_matters_is_shown_and_sorted() -> None:
    environ = {
        "VLLM_PLUGINS": "a",
        "HOME": "/h",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    assert list(settings(environ).items()) == [
        ("CUDA_VISIBLE_DEVICES", ""),
        ("OMP_NUM_THREADS", "1"),
        ("VLLM_PLUGINS", "a"),
    ]


@pytest.mark.parametrize(
    "name", ["VLLM_API_KEY", "VLLM_AUTH", "VLLM_x_token", "NCCL_SECRET", "VLLM_S3_PASSWORD"]
)
def test_a_secret_by_its_name_is_hidden(name: str) -> None:
    assert settings({name: "s3cret"}) == {name: HIDDEN}


@pytest.mark.parametrize("value", ["Bearer abc", "x hf_abcdefgh123", "sk-abcdefgh123"])
def test_a_secret_by_its_value_is_hidden(value: str) -> None:
    assert shown("VLLM_HEADERS", value) == HIDDEN


def test_a_login_in_an_address_is_cut_out() -> None:
    assert shown("VLLM_PROXY", "https://me:pw@host/x") == "https://***@host/x"


def test_tokens_of_the_hub_are_not_even_listed() -> None:
    assert settings({"HF_TOKEN": "hf_x", "OPENAI_API_KEY": "k"}) == {}
