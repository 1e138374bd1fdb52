"""The stand-in for vLLM's config against the config that vLLM makes: the classes answer the same.

Models of every kind of layer that is asked about, on GPUs that are not there.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.contract import flashinfer_python, stand_in_worker
from tests.contract.vllm_source import ROOT, plain_environment, tree_of

MODELS = (
    "llama-3.1-8b",
    "gpt-oss-120b",
    "gemma-3-1b",
    "deepseek-v3",
    "granite-4-h-tiny",
    "qwen3-8b",
)
FLAGS: list[list[str]] = [[], ["--kv-cache-dtype", "fp8"], ["--block-size", "64"]]


@pytest.mark.parametrize(
    ("version", "gpu"),
    [
        ("0.33.0", "b200"),
        pytest.param("0.33.0", "h100", marks=pytest.mark.full),
        pytest.param("0.33.0", "mi300x", marks=pytest.mark.full),
        pytest.param("0.32.0", "b200", marks=pytest.mark.full),
    ],
)
def test_the_classes_say_the_same_of_a_real_config(version: str, gpu: str, tmp_path: Path) -> None:
    models = {name: str(ROOT / "tests/configs" / name) for name in MODELS}
    environ = {
        **plain_environment(),
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(flashinfer_python.folder()))),
        "VLLM_PLUGINS": "",
        "VLLM_CACHE_ROOT": str(tmp_path),
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
    }
    done = subprocess.run(
        [str(tree_of(version).parents[3] / "bin/python"), stand_in_worker.__file__],
        input=json.dumps({"gpu": gpu, "models": models, "flags": FLAGS}),
        env=environ,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert len(told) == len(MODELS) * len(FLAGS)
    for name, flags, stand_in, real in told:
        assert stand_in == real, (name, flags)
        assert all(each["candidates"] for each in real)
        assert {one["source"] for each in real for one in each["candidates"]} == {"asked"}
