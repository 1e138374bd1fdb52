"""The program in an environment that lacks what the command is made with."""

import json
import subprocess
import sys

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
