"""By vLLM's own classes the whole check gives the answer that it gives by the table."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.contract.vllm_source import NEWEST_OFTEN, plain_environment, tree_of
from tests.unit.preflight.rules.checkpoints import write

ARGS = {
    "a backend that is refused": ("rtx5090", "--attention-backend", "FLASH_ATTN"),
    "two kinds of layers": ("a100",),
}


@pytest.mark.parametrize("version", NEWEST_OFTEN)
@pytest.mark.parametrize("name", ARGS)
def test_both_ways_give_one_answer(name: str, version: str, tmp_path: Path) -> None:
    spec = {
        "method": "eagle",
        "model": write(tmp_path, "llama-3-8b-eagle"),
        "num_speculative_tokens": 7,
        "enable_adaptive_verification": True,
    }
    gpu, *more = ARGS[name]
    target = write(tmp_path, "command-r7b" if not more else "llama-3.1-8b")
    args = [target, "--speculative-config", json.dumps(spec), "--gpu", gpu, *more]
    asked, table = (_check(version, args, way) for way in ("auto", "table"))
    assert asked["capabilities"] == "the installed vLLM's own classes"
    assert table["capabilities"] == f"this package's table of vLLM {version}"
    assert [layer["chosen"]["source"] for layer in asked["layers"]] == ["asked"] * len(
        asked["layers"]
    )
    assert asked["layers"]
    for answer in (asked, table):
        for layer in answer["layers"]:
            for candidate in (layer["chosen"], *layer["candidates"]):
                del candidate["source"]
        for reason in answer["reasons"]:
            del reason["source"]
    assert asked["reasons"] == table["reasons"]
    assert [each["chosen"] for each in asked["layers"]] == [
        each["chosen"] for each in table["layers"]
    ]
    assert asked["verdict"] == ("no" if name == "a backend that is refused" else "yes")


def _check(version: str, args: list[str], way: str) -> dict[str, Any]:
    program = tree_of(version).parents[3] / "bin/vllm-av"
    done = subprocess.run(
        [program, "check", "--capabilities", way, *args, "--json"],
        capture_output=True,
        text=True,
        env={**plain_environment(), "OMP_NUM_THREADS": "1"},
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
