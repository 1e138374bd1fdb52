"""The program in an environment that lacks what the command is made with."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_av import __version__


def _run(*arguments: str, missing: str | None) -> subprocess.CompletedProcess[str]:
    program = f"""
import sys
if {missing!r}:
    sys.modules[{missing!r}] = None
from vllm_av.cli.main import main
main()
"""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_program_is_the_command() -> None:
    answer = _run("--version", missing=None)
    assert (answer.returncode, answer.stdout) == (0, f"vllm_av {__version__}\n")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_a_dependency_it_is_one_line(missing: str) -> None:
    answer = _run("demo", missing=missing)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("error: [AV-VERB-IMPORT] ")
    assert missing in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_for_a_program_it_is_an_object() -> None:
    answer = _run("doctor", "--json", missing="typer")
    assert (answer.returncode, answer.stderr) == (2, "")
    assert json.loads(answer.stdout)["error"]["code"] == "AV-VERB-IMPORT"


BROKEN = """
import sys, types, typer
module = types.ModuleType("vllm_av.cli.doctor")
module.app = typer.Typer()
@module.app.command()
def broken(as_json: bool = typer.Option(False, "--json")) -> None:
    raise ZeroDivisionError("by nought")
sys.modules["vllm_av.cli.doctor"] = module
from vllm_av.cli.main import main
main()
"""


@pytest.mark.parametrize("arguments", [["doctor"], ["doctor", "--json"]])
def test_a_fault_of_ours_is_one_line_that_names_its_traceback(
    arguments: list[str], tmp_path: Path
) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", BROKEN, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=60,
    )
    assert answer.returncode == 70
    assert "Traceback" not in answer.stderr + answer.stdout
    if "--json" in arguments:
        error = json.loads(answer.stdout)["error"]
        said = f"[{error['code']}] {error['given']} {error['fix']}"
    else:
        said = answer.stderr
        assert said.count("\n") == 1
    assert "[AV-INTERNAL] ZeroDivisionError: by nought" in said
    file = re.search(rf"{tmp_path}\S+traceback\.txt", said)
    assert file is not None
    assert "ZeroDivisionError: by nought" in Path(file[0]).read_text()


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["doctor", "--json"]])
def test_an_answer_that_cannot_be_written_is_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        answer = subprocess.run(
            [sys.executable, "-m", "vllm_av", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: [AV-STDOUT] the answer cannot be written ([Errno 28]")
    assert answer.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", ["--version", "scorers", "scorers --json", "demo --json"])
def test_a_closed_stdout_is_told_before_anything_is_done(arguments: str) -> None:
    command = f"{sys.executable} -m vllm_av {arguments} >&-"
    answer = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, timeout=60)
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: [AV-STDOUT] the answer cannot be written (it is closed")
    assert answer.stderr.count("\n") == 1


def test_a_mistake_keeps_its_exit_code_where_nobody_listens() -> None:
    command = f"{sys.executable} -m vllm_av bogus 2>&-"
    assert subprocess.run(command, shell=True, capture_output=True, timeout=60).returncode == 2
    command = f"{sys.executable} -m vllm_av bogus 2>/dev/full"
    assert subprocess.run(command, shell=True, capture_output=True, timeout=60).returncode == 2
