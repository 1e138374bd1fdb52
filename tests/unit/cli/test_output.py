"""How verbs answer."""

import json
from pathlib import Path

import pytest
import typer

from vllm_av.cli.output import EXIT_MISTAKE, emit, mistakes
from vllm_av.errors import Code, SetupError


def _mistake() -> SetupError:
    return SetupError(Code.USAGE, "given", "allowed", "fix")


def test_json_is_one_sorted_object_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"b": Path("x"), "a": 1}, as_json=True, text=lambda: pytest.fail("text was asked for"))
    out, err = capsys.readouterr()
    assert json.loads(out) == {"a": 1, "b": "x"}
    assert out.index('"a"') < out.index('"b"')
    assert err == ""


def test_text_prints_no_json(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"a": 1}, as_json=False, text=lambda: typer.echo("for people"))
    assert capsys.readouterr().out == "for people\n"


def test_a_mistake_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught, mistakes(as_json=False):
        raise _mistake()
    assert caught.value.exit_code == EXIT_MISTAKE
    assert capsys.readouterr() == ("", "error: [AV-USAGE] given; allowed; fix\n")


def test_a_mistake_under_json_is_an_object_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught, mistakes(as_json=True):
        raise _mistake()
    assert caught.value.exit_code == EXIT_MISTAKE
    out, err = capsys.readouterr()
    assert json.loads(out) == {"error": _mistake().as_dict()}
    assert err == ""


def test_a_fault_of_ours_is_no_mistake_of_the_user() -> None:
    with pytest.raises(ZeroDivisionError), mistakes(as_json=False):
        _ = 1 / 0
