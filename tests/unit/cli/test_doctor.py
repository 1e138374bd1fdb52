"""The verb ``doctor``, run as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def _doctor(*arguments: str, without_site: bool = False) -> subprocess.CompletedProcess[str]:
    program = "from vllm_av.cli.app import main; main()"
    if without_site:
        # As in an environment where vLLM, torch and the rest are not installed.
        program = f"""
import importlib.metadata, sys
distributions = importlib.metadata.distributions
importlib.metadata.distributions = lambda **options: iter(())
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {{"vllm", "torch", "triton", "llvmlite", "numpy", "transformers"}}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
{program}
"""
    return subprocess.run(
        [sys.executable, "-c", program, "doctor", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )


@pytest.mark.parametrize("without_site", [False, True])
def test_json_and_the_exit_code_agree(without_site: bool) -> None:
    answer = _doctor("--json", without_site=without_site)
    assert answer.stderr == ""
    report = json.loads(answer.stdout)
    assert answer.returncode == (0 if report["healthy"] else 1)
    if without_site:
        assert "AV-ENV-NO-VLLM" in {finding["code"] for finding in report["findings"]}


def test_text_says_the_same_for_people() -> None:
    answer, report = _doctor(), json.loads(_doctor("--json").stdout)
    assert answer.returncode == (0 if report["healthy"] else 1)
    assert answer.stdout.startswith("environment\n")
    for finding in report["findings"]:
        assert f"{finding['level']}: [{finding['code']}]" in answer.stdout
    assert f"vllm_av              {report['vllm_av']}" in answer.stdout


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_an_environment_that_is_no_text_stops_nothing(arguments: list[str]) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "vllm_av", "doctor", *arguments],
        env={**os.environb, b"VLLM_PLUGINS": b"vllm_av,\xff\x1b[2J"},
        capture_output=True,
        cwd=ROOT,
        timeout=60,
    )
    assert answer.stderr == b""
    assert b"\\udcff" in answer.stdout
    assert b"\x1b" not in answer.stdout
