"""What a wheel of the package carries."""

import shutil
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built from the sdist, as an installer may."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run([*command, "-t", "sdist"], cwd=ROOT, check=True, capture_output=True)
    sdist = next(folder.glob("*.tar.gz"))
    subprocess.run(["tar", "xzf", str(sdist)], cwd=folder, check=True)
    source = folder / sdist.name.removesuffix(".tar.gz")
    subprocess.run([*command, "-t", "wheel"], cwd=source, check=True, capture_output=True)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


@pytest.fixture(scope="module")
def from_a_checkout(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built from a folder in which tools have been at work."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("LICENSE", "NOTICE", "README.md", "pyproject.toml", "ci/wheel.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "vllm_av").mkdir()
    shutil.copy(ROOT / "vllm_av/__init__.py", folder / "vllm_av/__init__.py")
    for name in (
        *("series", "core/a.patch", ".ruff_cache/0/1", "core/__pycache__/a.pyc"),
        *("tests/.pytest_cache/README.md", "tests/.hidden", "tests/test_a.py"),
    ):
        (folder / "patches" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "patches" / name).write_text(name)
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), "-t", "wheel"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_what_tools_leave_beside_the_series_is_not_carried(
    from_a_checkout: zipfile.ZipFile,
) -> None:
    start = "vllm_av/_patches/"
    names = (name for name in from_a_checkout.namelist() if name.startswith(start))
    assert {name.removeprefix(start) for name in names} == {
        *("series", "core/a.patch", "tests/test_a.py"),
    }


def test_the_series_lies_inside_the_package(wheel: zipfile.ZipFile) -> None:
    names = (path.relative_to(ROOT) for path in (ROOT / "patches").rglob("*") if path.is_file())
    source = {
        f"vllm_av/_{name}": (ROOT / name).read_bytes()
        for name in names
        if not any(part.startswith(".") or part == "__pycache__" for part in name.parts)
    }
    carried = {n: wheel.read(n) for n in wheel.namelist() if n.startswith("vllm_av/_patches/")}
    assert "vllm_av/_patches/0.32.0/series" in carried
    assert carried == source


def test_the_drafters_and_the_licences_are_carried(wheel: zipfile.ZipFile) -> None:
    source = {
        str(path.relative_to(ROOT)): path.read_bytes()
        for path in (ROOT / "vllm_av/data").rglob("*")
        if path.is_file()
    }
    names = wheel.namelist()
    assert "vllm_av/data/smollm2-eagle/model.safetensors" in source
    assert {n: wheel.read(n) for n in names if n.startswith("vllm_av/data/")} == source
    assert {n.rpartition("/")[2] for n in names if "/licenses/" in n} == {"LICENSE", "NOTICE"}


def test_nothing_else_is_carried(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"vllm_av"}


def test_every_entry_point_names_a_module_that_is_carried(wheel: zipfile.ZipFile) -> None:
    name = next(n for n in wheel.namelist() if n.endswith("entry_points.txt"))
    parser = ConfigParser(delimiters=("=",))
    parser.read_string(wheel.read(name).decode())
    assert {section: dict(parser[section]) for section in parser.sections()} == {
        "console_scripts": {"vllm-av": "vllm_av.cli.main:main"},
        "triton.backends": {"cpu": "vllm_av.triton_shim"},
        "vllm.general_plugins": {"vllm_av": "vllm_av.plugin:register"},
    }
    for module in ("vllm_av/cli/main.py", "vllm_av/plugin.py", "vllm_av/triton_shim/driver.py"):
        assert module in wheel.namelist()
