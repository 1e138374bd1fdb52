"""``vllm-av demo``: a wrong option is one line and nothing starts."""

import json

import pytest

from vllm_av.cli.app import main


def _run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as leaving:
        main(["demo", *arguments])
    assert isinstance(leaving.value.code, int)
    return leaving.value.code


def test_a_wrong_value_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("--num-speculative-tokens", "9") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "error: [AV-DEMO-OPTION] --num-speculative-tokens 9; "
        "--num-speculative-tokens takes 1 to 8; choose a value in that range\n"
    )


def test_a_wrong_value_is_an_object_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("--json", "--concurrency", "1", "--concurrency", "64") == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "AV-DEMO-OPTION"
    assert error["given"] == "--concurrency 64"


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("--help") == 0
    text = capsys.readouterr().out
    for option in ("concurrency", "num-speculative-tokens", "temperature", "max-tokens", "json"):
        assert f"--{option}" in text
