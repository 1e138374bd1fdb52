"""Asking each supported vLLM what it makes of a command line on a GPU that is not there.

Rule: one process a version and GPU answers all cases; vLLM runs without this package's plugin, so
that the words are its own.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.contract.vllm_source import ROOT, plain_environment, tree_of

WORKER = "tests.contract.config_worker"
"""Not imported here: it imports torch."""

MEMORY = {"a100": 80, "h100": 80, "b200": 180, "rtx5090": 32, "mi300x": 192, "xpu": 24, "cpu": 64}
"""GPU -> what it is sold with, in GiB."""


@dataclass(frozen=True)
class Case:
    """One.

    Args:
        argv: what follows ``vllm serve``.
        environ: variables.
        build: whether the target is built too, for vLLM to look at its layers.
    """

    argv: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)
    build: bool = False


@dataclass(frozen=True)
class Outcome:
    """What vLLM says.

    Args:
        refusal: its words, None where it starts.
        kind: the class of the exception.
        settled: what it settled, None where it refuses.
        layers: of a built target: backend, what the release says of it, how many layers.
    """

    refusal: str | None
    kind: str | None
    settled: Mapping[str, Any] | None
    layers: Sequence[tuple[str, str, int]] | None


def ask(
    version: str, gpu: str, cases: Sequence[Case], cache: Path, packages: Path | None = None
) -> list[Outcome]:
    """Ask the vLLM of that version; ``cache`` is a folder for what it keeps.

    Args:
        gpu: of :data:`MEMORY`.
        packages: a folder with what else vLLM is to find.
    """
    python = tree_of(version).parents[3] / "bin/python"
    environ = {
        **plain_environment(),
        "VLLM_PLUGINS": "",
        "VLLM_CACHE_ROOT": str(cache),
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
    }
    if packages is not None:
        environ["PYTHONPATH"] = str(packages)
    question = {
        "gpu": gpu,
        "memory": MEMORY[gpu],
        "cases": [
            {"argv": each.argv, "environ": {**each.environ}, "build": each.build} for each in cases
        ],
    }
    done = subprocess.run(
        [str(python), "-m", WORKER],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environ,
        # Building takes seconds a model, and more beside others' work.
        timeout=900 if any(each.build for each in cases) else 240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [Outcome(**each) for each in json.loads(done.stdout)]
