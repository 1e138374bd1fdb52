"""What a wheel of the package carries."""

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


def test_the_series_lies_inside_the_package(wheel: zipfile.ZipFile) -> None:
    source = {
        f"vllm_av/_patches/{path.relative_to(ROOT / 'patches')}": path.read_bytes()
        for path in (ROOT / "patches").rglob("*")
        if path.is_file()
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
