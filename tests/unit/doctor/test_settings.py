"""Which variables are shown, and that no secret is."""

import pytest

from vllm_av.doctor.settings import HIDDEN, plain, settings, shown


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
    "name",
    ["VLLM_API_KEY", "VLLM_AUTH", "VLLM_x_token", "NCCL_SECRET", "VLLM_S3_PASSWORD", "VLLM_DB_PWD"],
)
def test_a_secret_by_its_name_is_hidden(name: str) -> None:
    assert settings({name: "s3cret"}) == {name: HIDDEN}


def test_of_a_variable_that_is_not_known_only_the_name_is_shown() -> None:
    assert settings({"VLLM_OUR_OWN": "x", "NCCL_X": "y"}) == {
        "VLLM_OUR_OWN": HIDDEN,
        "NCCL_X": HIDDEN,
    }


@pytest.mark.parametrize(
    "value",
    [
        "Bearer abc",
        "x hf_abcdefgh123",
        "sk-abcdefgh123",
        "sk-proj-abcdefgh",
        "ghp_abcdefgh123",
        "AKIAABCDEFGHIJKL",
        "Basic dXNlcjpwdw==",
        "Authorization: x",
        "https://host/x?X-Amz-Signature=1",
    ],
)
def test_a_secret_by_its_value_is_hidden(value: str) -> None:
    assert shown("PYTHONPATH", value) == HIDDEN


@pytest.mark.parametrize("value", ["https://me:pw@host/x", "https://me:p@w@host/x"])
def test_a_login_in_an_address_is_cut_out(value: str) -> None:
    assert shown("PYTHONPATH", value) == "https://***@host/x"


def test_tokens_of_the_hub_are_not_even_listed() -> None:
    assert settings({"HF_TOKEN": "hf_x", "OPENAI_API_KEY": "k"}) == {}


def test_what_a_terminal_would_obey_is_spelt_out() -> None:
    assert plain("a\x1b[31m\udcff\nä") == r"a\x1b[31m\udcff\nä"
    assert shown("PYTHONPATH", "a\x1b[2J") == r"a\x1b[2J"
