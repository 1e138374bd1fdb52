"""The build's own command, run on a folder that is laid out as vLLM's images are."""

import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.metadata import PathDistribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator, FormatChecker
from referencing import Registry, Resource

from tests.contract.image_root import (
    DIGEST,
    EPOCH,
    VLLM,
    Image,
    build,
    context,
    lay_out,
    without_data,
    write,
)
from vllm_av import __version__
from vllm_av.patching.series import read_series, series_root
from vllm_av.patching.tree import parse_record, record_line

# The wheel of vLLM is fetched once in the life of a machine.
pytestmark = pytest.mark.timeout(1800)

PATCHED = "vllm/config/speculative.py"
STATUS = [*(sys.executable, "-P", "-B", "-m", "vllm_av"), *("patch", "status", "--json", "--site")]
GROUPS = {"gpu": {"core"}, "cpu": {"core", "cpu"}}
SERIES = read_series(series_root(), VLLM)
TOUCHED = {diff.path for patch in SERIES.patches for diff in patch.diffs}


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an engine would be sent."""
    return context(tmp_path_factory.mktemp("context"))


@pytest.fixture(scope="module")
def light(there: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, and quicker."""
    return without_data(there, tmp_path_factory.mktemp("light") / "context")


@pytest.fixture(scope="module", params=["gpu", "cpu"])
def built(
    request: pytest.FixtureRequest, there: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Image, dict[str, Any]]:
    """An image with all of vLLM's Python, and what it was before."""
    image = lay_out(tmp_path_factory.mktemp("image") / "root", request.param)
    before = image.files()
    done = build(there, image)
    assert done.returncode == 0, done.stderr
    return image, before


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Image]:
    """Images that hold of vLLM what the series touches."""
    folder, files = tmp_path_factory.mktemp("stock"), TOUCHED | {"vllm/__init__.py"}
    return {target: lay_out(folder / target, target, only=files) for target in GROUPS}


@pytest.fixture
def small(stock: dict[str, Image], tmp_path: Path) -> Callable[..., Image]:
    """Makes a copy of one of them."""

    def make(target: str = "gpu", name: str = "root") -> Image:
        root = Path(shutil.copytree(stock[target].root, tmp_path / name))
        return Image(root, root / stock[target].site.relative_to(stock[target].root), target)

    return make


def _read(image: Image, name: str) -> Any:
    return json.loads((image.root / "usr/share/vllm_av" / name).read_text())


def _sum(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def test_the_series_is_applied_and_the_image_itself_says_so(built: tuple[Image, Any]) -> None:
    image, _ = built
    done = subprocess.run(
        [*STATUS, str(image.root)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(image.site)},
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(done.stdout)
    wanted = SERIES.only(GROUPS[image.target])
    assert said["state"] == "applied"
    assert said["patches"] == [patch.name for patch in wanted.patches]
    assert said["applied_at"] == "2023-11-14T22:13:20+00:00"
    assert Path(said["site"]) == image.site


def test_the_manifest_names_every_patch_and_each_file_with_its_sums(
    built: tuple[Image, Any],
) -> None:
    image, before = built
    found = _read(image, "manifest.json")
    wanted = SERIES.only(GROUPS[image.target])
    assert found["base"] == {"name": f"docker.io/vllm/base:v{VLLM}", "digest": DIGEST}
    assert found["vllm"]["version"] == {"gpu": VLLM, "cpu": f"{VLLM}+cpu"}[image.target]
    assert found["series"] == {
        "version": VLLM,
        "groups": sorted(GROUPS[image.target]),
        "sha256": wanted.digest,
    }
    assert {each["id"]: each["sha256"] for each in found["patches"]} == {
        patch.name: hashlib.sha256(patch.text).hexdigest() for patch in wanted.patches
    }
    for each in found["patches"]:
        assert _sum(image.root / each["file"].lstrip("/")) == each["sha256"]
    where = image.site.relative_to(image.root)
    assert {each["path"] for each in found["files"]} == {
        diff.path for patch in wanted.patches for diff in patch.diffs
    }
    for each in found["files"]:
        old = before.get(str(where / each["path"]))
        assert each["before"] == (old and old[0])
        assert each["after"] == _sum(image.site / each["path"])
        assert each["before"] != each["after"]


def test_nothing_else_of_the_image_has_changed(built: tuple[Image, Any]) -> None:
    image, before = built
    after = image.files()
    where = image.site.relative_to(image.root)
    info = next(image.site.glob("vllm-*.dist-info")).name
    patched = {each["path"] for each in _read(image, "manifest.json")["files"]}
    changed = {path for path, facts in before.items() if after.get(path) != facts}
    old = {str(where / path) for path in patched} & before.keys()
    assert changed == old | {str(where / info / "RECORD")}
    for path in changed:
        assert after[path][1:3] == before[path][1:3], path  # mode and owner
    tops = {path.partition("/")[0] for path in _below(after.keys() - before.keys(), where)}
    assert tops == {"vllm", "vllm_av", f"vllm_av-{__version__}.dist-info", "vllm_av_patches-vllm"}
    programs = image.site.parents[2].relative_to(image.root) / "bin"
    assert {path for path in after.keys() - before.keys() if not path.startswith(str(where))} == {
        str(programs / "vllm-av"),
        "usr/share/vllm_av/manifest.json",
        "usr/share/vllm_av/sbom.cdx.json",
    }
    assert not [path for path in after if path.endswith(".pyc")]


def _below(paths: set[str], where: Path) -> list[str]:
    return [path.removeprefix(f"{where}/") for path in paths if path.startswith(f"{where}/")]


@pytest.mark.parametrize("built", ["gpu"], indirect=True)
def test_the_package_is_installed_as_pip_would_do_it(
    built: tuple[Image, Any], there: Path, tmp_path: Path
) -> None:
    image, _ = built
    wheel = next((there / "build/image").glob("*.whl"))
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, "-q", "--target", str(tmp_path), str(wheel)], check=True)
    record = f"vllm_av-{__version__}.dist-info/RECORD"
    ours, pips = (
        {row[0]: row[1:] for row in csv.reader((site / record).read_text().splitlines())}
        for site in (image.site, tmp_path)
    )
    # Where it was told to look, and how a command is called there.
    added = {p for p in pips if p.startswith("../") or p.endswith(("/REQUESTED", "_url.json"))}
    command = "../../../bin/vllm-av"
    differ = {record, f"{record.partition('/')[0]}/INSTALLER", command}
    assert ours.keys() - {command} == pips.keys() - added
    assert {p: ours[p] for p in ours if p not in differ} == {
        p: pips[p] for p in pips if p not in differ | added
    }
    for path, digest in parse_record((image.site / record).read_bytes()).items():
        assert _sum(image.site / path) == digest, path
    points = PathDistribution(image.site / record.partition("/")[0]).entry_points
    assert ("vllm.general_plugins", "vllm_av") in {(p.group, p.name) for p in points}
    script = (image.site.parents[2] / "bin/vllm-av").read_text()
    assert script.startswith("#!/usr/bin/python3\n")
    script = script.partition("\n")[2]
    done = subprocess.run(
        [sys.executable, "-P", "-B", "-c", script, "--version"],
        env={"PYTHONPATH": str(image.site)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"vllm_av {__version__}\n"


@pytest.fixture(scope="module")
def bills() -> Draft7Validator:
    """CycloneDX 1.6, with the schemas that it refers to."""
    spec = find_spec("cyclonedx.schema._res")
    assert spec is not None
    assert spec.origin is not None
    named = {
        file.name: json.loads(file.read_text())
        for file in Path(spec.origin).parent.glob("*.schema.json")
    }
    places = ("", "http://cyclonedx.org/schema/")
    registry: Registry[Any] = Registry().with_resources(
        (place + name, Resource.from_contents(schema))
        for name, schema in named.items()
        for place in places
    )
    return Draft7Validator(
        named["bom-1.6.SNAPSHOT.schema.json"], registry=registry, format_checker=FormatChecker()
    )


def test_the_bill_is_cyclonedx_and_names_the_patches_of_vllm(
    built: tuple[Image, Any], bills: Draft7Validator
) -> None:
    image, _ = built
    bill, manifest = _read(image, "sbom.cdx.json"), _read(image, "manifest.json")
    assert [error.message for error in bills.iter_errors(bill)] == []
    spoilt = bill | {
        "components": [{"type": "library", "pedigree": {"patches": [{"type": "own"}]}}]
    }
    assert len(list(bills.iter_errors(spoilt))) == 2
    (vllm,) = (each for each in bill["components"] if each["name"] == "vllm")
    number = {"gpu": VLLM, "cpu": f"{VLLM}%2Bcpu"}[image.target]
    assert vllm["purl"] == f"pkg:pypi/vllm@{number}"
    patches = vllm["pedigree"]["patches"]
    assert [each["resolves"][0]["id"] for each in patches] == [
        each["id"] for each in manifest["patches"]
    ]
    assert {each["type"] for each in patches} == {"unofficial"}
    for each in patches:
        assert (image.root / each["diff"]["url"].removeprefix("file:///")).is_file()
    assert {each["name"]: each["hashes"][0]["content"] for each in vllm["components"]} == {
        each["path"]: each["after"] for each in manifest["files"]
    }
    sums = {each["name"]: each["hashes"][0]["content"] for each in bill["components"][2:]}
    assert sums == {each["id"]: each["sha256"] for each in manifest["patches"]}
    assert bill["compositions"] == [{"aggregate": "incomplete", "assemblies": ["image"]}]


def test_the_same_build_writes_the_same_bytes_elsewhere_again_and_over_a_killed_one(
    light: Path, small: Callable[..., Image]
) -> None:
    one, other = small(name="one"), small(name="a/longer/name")
    write(other.site / ".vllm_av.new/vllm_av/__init__.py", b"")
    with zipfile.ZipFile(next((light / "build/image").glob("*.whl"))) as wheel:
        write(other.site / "vllm_av/__init__.py", wheel.read("vllm_av/__init__.py"))
    for image in (one, other):
        assert build(light, image).returncode == 0
    files = one.files()
    assert files == other.files()
    assert {facts[3] for path, facts in files.items() if "vllm_av" in path} == {int(EPOCH) * 10**9}
    again = build(light, one)
    assert again.returncode == 0
    assert "already there" in again.stdout
    assert "already applied" in again.stdout
    assert one.files() == files
    # A build that was killed while it wrote the last two files; and what it cannot replace.
    write(one.root / "usr/share/vllm_av/manifest.json.new", b"half of it")
    assert build(light, one).returncode == 0
    assert one.files() == files
    bill = one.root / "usr/share/vllm_av/sbom.cdx.json"
    bill.unlink()
    bill.mkdir()
    files = one.files()
    assert "sbom.cdx.json is in the way, and no build" in build(light, one).stderr
    assert one.files() == files
    bill.rmdir()
    (one.root / "usr/share/vllm_av/sbom.cdx.json.new").mkdir()
    assert "the image is as it was" in build(light, one).stderr
    assert one.files() == files


def _edit(image: Image) -> None:
    write(image.site / PATCHED, b"# somebody's own\n")


def _edit_and_record(image: Image) -> None:
    """Another build of vLLM: whole, and not the pinned one."""
    content = (image.site / PATCHED).read_bytes() + b"\n# of another build\n"
    write(image.site / PATCHED, content)
    record = next(image.site.glob("vllm-*.dist-info")) / "RECORD"
    rows = list(csv.reader(record.read_text().splitlines()))
    lines = [record_line(PATCHED, content) if row[0] == PATCHED else ",".join(row) for row in rows]
    write(record, "\n".join([*lines, ""]).encode())


def _another_version(image: Image) -> None:
    info = next(image.site.glob("vllm-*.dist-info"))
    text = (info / "METADATA").read_text().replace(f"Version: {VLLM}", "Version: 0.32.0")
    write(info / "METADATA", text.encode())


def _for_cpus(image: Image) -> None:
    info = next(image.site.glob("vllm-*.dist-info"))
    text = (info / "METADATA").read_text().replace(f"Version: {VLLM}", f"Version: {VLLM}+cpu")
    write(info / "METADATA", text.encode())


def _old_pydantic(image: Image) -> None:
    info = next(image.site.glob("pydantic-*.dist-info"))
    write(info / "METADATA", b"Metadata-Version: 2.1\nName: pydantic\nVersion: 2.9.10\n")


def _no_typer(image: Image) -> None:
    shutil.rmtree(next(image.site.glob("typer-*.dist-info")))


def _another_vllm_av(image: Image) -> None:
    write(image.site / "vllm_av-0.0.9.dist-info/METADATA", b"Name: vllm-av\nVersion: 0.0.9\n")


def _patches_blocked(image: Image) -> None:
    write(image.site / "vllm_av_patches-vllm", b"somebody's own")


def _manifest_blocked(image: Image) -> None:
    write(image.root / "usr/share/vllm_av", b"somebody's own")


def _manifest_of_another(image: Image) -> None:
    write(image.root / "usr/share/vllm_av/manifest.json", b"somebody's own")


def _package_of_another(image: Image) -> None:
    write(image.site / "vllm_av/mine.py", b"somebody's own")


def _no_entry_points(image: Image) -> None:
    write(image.site / "foo-1.dist-info/METADATA", b"Name: foo\nVersion: 1\n")
    write(image.site / "foo-1.dist-info/entry_points.txt", b"\xff")


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        (_another_version, "AV-IMAGE-BASE", "vllm 0.32.0 in "),
        (_for_cpus, "AV-IMAGE-BASE", "one vLLM 0.33.0 for GPUs"),
        (lambda image: (image.site.parents[2] / "bin/vllm").unlink(), "AV-IMAGE-BASE", "command"),
        (lambda image: shutil.rmtree(image.site), "AV-IMAGE-BASE", "no vLLM below "),
        (_another_vllm_av, "AV-IMAGE-BASE", "vllm_av 0.0.9 is in "),
        (_package_of_another, "AV-IMAGE-BASE", "mine.py is in the way"),
        (_manifest_of_another, "AV-IMAGE-BASE", "manifest.json is in the way"),
        (_no_entry_points, "AV-IMAGE-BASE", "foo-1.dist-info has entry points that"),
        (_old_pydantic, "AV-IMAGE-NEEDS", "pydantic>=2.12 (there is 2.9.10)"),
        (_no_typer, "AV-IMAGE-NEEDS", "typer (none)"),
        (_edit, "AV-PATCH-NOT-PRISTINE", "pip install --force-reinstall"),
        (_edit_and_record, "AV-IMAGE-PINS", "core/"),
        (_patches_blocked, "AV-PATCH-STATE", "vllm_av_patches-vllm"),
        (_manifest_blocked, "AV-IMAGE-WRITE", "the image is as it was"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line_and_the_image_is_as_it_was(
    spoil: Callable[[Image], None],
    code: str,
    words: str,
    light: Path,
    small: Callable[..., Image],
) -> None:
    image = small()
    spoil(image)
    before, folders = image.files(), image.folders()
    done = build(light, image)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: [{code}] ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert image.files() == before
    assert image.folders() == folders


def test_a_cpu_image_without_the_code_generator_is_refused(
    light: Path, small: Callable[..., Image]
) -> None:
    image = small("cpu")
    shutil.rmtree(next(image.site.glob("llvmlite-*.dist-info")))
    assert "lacks llvmlite (none)" in build(light, image).stderr


def test_the_backend_of_another_triton_for_cpus_is_left_to_it(
    light: Path, small: Callable[..., Image]
) -> None:
    image = small("cpu")
    write(image.site / "triton-3.7.dist-info/METADATA", b"Name: triton\nVersion: 3.7\n")
    points = b"[triton.backends]\ncpu = triton.backends.cpu\n"
    write(image.site / "triton-3.7.dist-info/entry_points.txt", points)
    assert build(light, image).returncode == 0
    info = image.site / f"vllm_av-{__version__}.dist-info"
    assert {point.group for point in PathDistribution(info).entry_points} == {
        "console_scripts",
        "vllm.general_plugins",
    }
    assert _read(image, "manifest.json")["vllm_av"]["left_out"] == ["triton.backends: cpu"]
    for path, digest in parse_record((info / "RECORD").read_bytes()).items():
        assert _sum(image.site / path) == digest, path


@pytest.fixture
def own(light: Path, tmp_path: Path) -> Path:
    """A build's context to spoil."""
    return Path(shutil.copytree(light, tmp_path / "own"))


def test_a_dockerfile_of_another_series_is_refused(own: Path, small: Callable[..., Image]) -> None:
    image = small()
    before = image.files()
    text = (own / "ci/Dockerfile").read_text()
    first = SERIES.patches[0].name
    (own / "ci/Dockerfile").write_text(text.replace(f'"{first} ', '"'))
    done = build(own, image)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: [AV-IMAGE-LABELS] the labels of gpu ")
    assert image.files() == before


@pytest.mark.parametrize("spoil", ["two", "none", "edited"])
def test_it_takes_one_whole_wheel(own: Path, small: Callable[..., Image], spoil: str) -> None:
    image = small()
    before = image.files()
    wheel = next((own / "build/image").glob("*.whl"))
    if spoil == "two":
        shutil.copy(wheel, wheel.with_name("vllm_av-9-py3-none-any.whl"))
    elif spoil == "none":
        wheel.unlink()
    else:
        whole = wheel.rename(wheel.with_suffix(".whole"))
        with zipfile.ZipFile(whole) as old, zipfile.ZipFile(wheel, "w") as new:
            for name in old.namelist():
                more = b"\nimport socket\n" if name == "vllm_av/plugin.py" else b""
                new.writestr(name, old.read(name) + more)
    done = build(own, image)
    assert done.returncode == 1
    assert done.stderr.startswith("error: [AV-IMAGE-WHEEL] ")
    assert image.files() == before
