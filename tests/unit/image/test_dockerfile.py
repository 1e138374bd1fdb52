"""The Dockerfile: what stands in it, and what does not."""

import re
import subprocess
import sys
from typing import get_args

import pytest

from ci.image import labels, refusal
from ci.image.refusal import Refusal
from ci.image.targets import CPU, GPU, TARGETS, Target
from tests.contract.image_root import ROOT, instructions, let_through, stages
from vllm_av.errors import Code
from vllm_av.patching.series import read_series, series_root

TEXT = labels.DOCKERFILE.read_text(encoding="utf-8")
FRESH = labels.with_labels(TEXT)
STAGES = stages(FRESH)


def test_a_build_that_names_no_target_makes_the_gpu_image() -> None:
    assert list(STAGES) == ["", "cpu", "gpu"]


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_each_image_is_made_from_the_one_that_its_target_is_for(target: Target) -> None:
    name = f"{target.name.upper()}_BASE"
    assert ("ARG", f"{name}={target.base}") in STAGES[""]
    first, *others = STAGES[target.name]
    assert first == ("FROM", f"${{{name}}} AS {target.name}")
    # An argument given before FROM is known in a stage that names it, and nowhere else.
    assert others[0] == ("ARG", name)


def test_nothing_of_the_base_is_changed_but_by_the_one_command() -> None:
    """No user, entry point, command, variable, port, copied file or URL of our own."""
    for stage in (CPU.name, GPU.name):
        names = [name for name, _ in STAGES[stage]]
        assert names == ["FROM", "ARG", "ARG", "RUN", "ARG", "LABEL"]
        (command,) = (arguments for name, arguments in STAGES[stage] if name == "RUN")
        mounts = re.findall(r"--mount=(\S+)", command)
        assert {mount.partition(",")[0] for mount in mounts} == {"type=bind"}
        assert re.sub(r"--mount=\S+ *", "", command) == (
            "PYTHONPATH=/mnt/vllm_av python3 -B -m ci.image "
            f'--target {stage} --base "${{{stage.upper()}_BASE}}" --wheels /mnt/vllm_av/wheels'
        )
    assert "# syntax" not in TEXT  # it would be fetched


def test_the_labels_are_those_of_the_series() -> None:
    assert FRESH == TEXT, "run: python -m ci.image.labels"


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_the_labels_name_every_patch_and_where_the_rest_is_told(target: Target) -> None:
    ((_, arguments),) = (each for each in STAGES[target.name] if each[0] == "LABEL")
    found = dict(re.findall(r'([\w.]+)="([^"]*)"', arguments))
    series = read_series(series_root(), target.vllm).only(target.groups)
    assert found["vllm_av.patches"].split() == [patch.name for patch in series.patches]
    assert found["vllm_av.series.sha256"] == series.digest
    assert found["org.opencontainers.image.base.name"] == f"${{{target.name.upper()}_BASE}}"
    assert found["org.opencontainers.image.licenses"] == "Apache-2.0"
    # What would else be the base image's own, and untrue of this one.
    assert {name for name, value in found.items() if not value} == {
        f"org.opencontainers.image.{name}" for name in ("vendor", "source", "url")
    }


def test_a_stale_label_is_told() -> None:
    series = read_series(series_root(), GPU.vllm).only(GPU.groups)
    stale = FRESH.replace(series.digest, "0" * 64)
    labels.refuse_stale(CPU, stale)
    with pytest.raises(Refusal) as refused:
        labels.refuse_stale(GPU, stale)
    assert str(refused.value).startswith("[AV-IMAGE-LABELS] the labels of gpu ")
    assert labels.with_labels(stale) == FRESH


def test_the_command_that_checks_them_takes_those_of_the_checkout() -> None:
    command = [sys.executable, "-m", "ci.image.labels", "--check"]
    assert (subprocess.run(command, cwd=ROOT).returncode == 0) is (FRESH == TEXT)


def test_the_context_holds_the_steps_and_the_wheel_and_nothing_else() -> None:
    assert let_through() == [
        "ci/Dockerfile",
        "ci/__init__.py",
        "ci/image/*.py",
        "build/image/*.whl",
    ]


def test_a_refusal_has_a_code_that_is_told_of() -> None:
    assert set(get_args(refusal.Code)) == {code for code in Code if code.startswith("AV-IMAGE-")}


def test_instructions_are_read_over_ends_of_lines() -> None:
    assert instructions("# c\nRUN a \\\n    b\nUSER x\n") == [("RUN", "a b"), ("USER", "x")]
