"""Names of GPUs: every one is known by all its spellings, and none is guessed."""

from dataclasses import replace

import pytest

from vllm_av import machine
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.backends.gpus import (
    gpu,
    here,
    names,
    of_amd,
    of_nvidia,
    rocm_capability,
    rocm_target,
    targets,
)
from vllm_av.preflight.facts import Gpu


@pytest.mark.parametrize(
    ("name", "platform", "major", "minor"),
    [
        ("sm75", "cuda", 7, 5),
        ("sm_90a", "cuda", 9, 0),
        ("SM100", "cuda", 10, 0),
        ("sm103", "cuda", 10, 3),
        ("12.1", "cuda", 12, 1),
        ("a100", "cuda", 8, 0),
        ("H200", "cuda", 9, 0),
        ("l40s", "cuda", 8, 9),
        ("GB200", "cuda", 10, 0),
        ("b300", "cuda", 10, 3),
        ("NVIDIA GeForce RTX 5090", "cuda", 12, 0),
        ("RTX PRO 6000", "cuda", 12, 0),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "cuda", 12, 0),
        ("NVIDIA H100 80GB HBM3", "cuda", 9, 0),
        ("NVIDIA A100-SXM4-80GB", "cuda", 8, 0),
        ("a100-80gb", "cuda", 8, 0),
        ("h100-pcie", "cuda", 9, 0),
        ("H100 NVL", "cuda", 9, 0),
        ("GH200 144G HBM3e", "cuda", 9, 0),
        ("Tesla T4", "cuda", 7, 5),
        ("RTX 6000 Ada Generation", "cuda", 8, 9),
        ("mi300x", "rocm", 9, 4),
        ("gfx950", "rocm", 9, 5),
        ("gfx1100", "rocm", 11, 0),
        ("xpu", "xpu", 0, 0),
        ("cpu", "cpu", 0, 0),
    ],
)
def test_a_gpu_has_its_platform_and_capability(
    name: str, platform: str, major: int, minor: int
) -> None:
    assert gpu(name) == Gpu(name, platform, major, minor)


def test_every_name_that_is_listed_is_known_and_stands_for_one_gpu() -> None:
    known = [name for name in names() if name != "auto"]
    assert len(known) == len(set(known))
    assert {gpu(name) is not None for name in known} == {True}
    assert set(targets()) < set(known)


@pytest.mark.parametrize("name", ["sm91", "sm9", "", "gfx", "h100x", "sm1000", "rtx"])
def test_what_is_no_gpu_is_told_with_the_names_that_are(name: str) -> None:
    with pytest.raises(CheckError) as error:
        gpu(name)
    assert error.value.code == Code.QUESTION_GPU
    assert "sm75, sm80" in error.value.allowed
    assert "gfx942" in error.value.allowed


def test_a_slip_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(CheckError, match="write --gpu rtx5090"):
        gpu("rtx5O90")


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("rtx6000", "write --gpu rtxa6000 or rtx6000ada"),
        ("a100x", "write --gpu a100"),
        ("h10", "write --gpu a10 or h100 or h20"),
        ("mi300", "write --gpu mi300a or mi300x"),
        ("q9999", "write what it is: sm and its compute capability"),
        ("80GB", "write what it is: sm and its compute capability"),
    ],
)
def test_only_what_a_name_begins_or_misses_by_one_is_proposed(name: str, fix: str) -> None:
    with pytest.raises(CheckError) as error:
        gpu(name)
    assert error.value.fix == fix


@pytest.mark.parametrize("name", ["v100", "Tesla V100-SXM2-32GB", "sm_70", "7.0"])
def test_a_gpu_that_is_too_old_is_told_so(name: str) -> None:
    with pytest.raises(CheckError, match="sm70 is not supported by vLLM"):
        gpu(name)


def test_rocm_capabilities_are_hips() -> None:
    # vllm/platforms/rocm.py, _capability_from_gcn_arch: its own examples.
    assert [rocm_capability(each) for each in ("gfx90a", "gfx942", "gfx1100", "gfx1200")] == [
        (9, 0),
        (9, 4),
        (11, 0),
        (12, 0),
    ]
    for name, target in (("mi250", "gfx90a"), ("gfx1201", "gfx1201"), ("mi355x", "gfx950")):
        found = gpu(name)
        assert found is not None
        assert rocm_target(found) == target
    assert rocm_target(Gpu("AMD card", "rocm", 9, 4)) == "gfx942"


@pytest.mark.parametrize(
    ("name", "capability", "pair"),
    [
        ("NVIDIA H100 80GB HBM3", "9.0", (9, 0)),
        ("NVIDIA GB200", None, (10, 0)),  # not of GB10, which is the start of its name
        ("NVIDIA GB10", None, (12, 1)),
        ("NVIDIA L40S", None, (8, 9)),
        ("NVIDIA A100-SXM4-80GB", None, (8, 0)),
    ],
)
def test_a_device_is_told_by_its_driver(
    name: str, capability: str | None, pair: tuple[int, int]
) -> None:
    assert of_nvidia(name, capability) == Gpu(name, "cuda", *pair)


def test_a_device_that_no_one_knows_is_not_guessed() -> None:
    assert of_nvidia("NVIDIA Q9999", None) is None
    assert of_amd("gfx target") is None
    assert of_amd("gfx target 90010") == Gpu("gfx90a", "rocm", 9, 0)
    assert of_amd("gfx target 120001") == Gpu("gfx1201", "rocm", 12, 0)


def test_a_cpu_build_of_vllm_runs_on_the_cpu_whatever_the_machine_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vllm_av.preflight.backends.gpus.vllm_is_cpu", lambda: True)
    assert here() == Gpu("cpu", "cpu", 0, 0)
    assert gpu("auto") == Gpu("cpu", "cpu", 0, 0)


@pytest.mark.parametrize(
    ("environ", "pair"),
    [
        ({}, (9, 0)),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, (12, 0)),
        ({"CUDA_VISIBLE_DEVICES": ""}, None),
        ({"CUDA_VISIBLE_DEVICES": "7"}, None),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8932f937-d72c"}, None),
    ],
)
def test_the_first_visible_device_counts(
    environ: dict[str, str], pair: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = machine.look()
    two = (
        machine.Gpu("nvidia", "NVIDIA H200", "9.0"),
        machine.Gpu("nvidia", "NVIDIA GeForce RTX 5090", "12.0"),
    )
    monkeypatch.setattr("vllm_av.preflight.backends.gpus.vllm_is_cpu", lambda: False)
    monkeypatch.setattr("vllm_av.preflight.backends.gpus.look", lambda: replace(seen, gpus=two))
    found = here(environ)
    assert (None if found is None else (found.major, found.minor)) == pair
