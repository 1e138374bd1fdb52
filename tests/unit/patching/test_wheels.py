"""The pinned wheel: fetched by pip once, checked each time, mended where it is damaged."""

import hashlib
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vllm_av.errors import Code, PatchError, SetupError
from vllm_av.patching.files import locked
from vllm_av.patching.series import series_root, stray, versions
from vllm_av.patching.wheels import Pin, pinned_wheel, read_pin

FILE = "vllm-0.40.0-cp38-abi3-manylinux_2_99_s390x.whl"
"""For no machine that runs this test, as the real one is not for every machine."""


def build_wheel(folder: Path, content: str = "one = 1\n") -> Path:
    """A wheel that asks for a Python of the past and for a package that does not exist."""
    folder.mkdir(exist_ok=True)
    path = folder / FILE
    info = "vllm-0.40.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("vllm/one.py", content)
        archive.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: vllm\nVersion: 0.40.0\nRequires-Python: <3.5\n"
            "Requires-Dist: no-such-package-anywhere\n",
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def write_pin(root: Path, wheel: Path, **changes: str) -> None:
    folder = root / "0.40.0"
    folder.mkdir(parents=True, exist_ok=True)
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    pin = {"distribution": "vllm", "version": "0.40.0", "file": FILE, "sha256": sha256} | changes
    (folder / "wheel.toml").write_text("".join(f'{key} = "{pin[key]}"\n' for key in pin))


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pip looks, and the only place."""
    wheel = build_wheel(tmp_path / "shop")
    write_pin(tmp_path / "patches", wheel)
    for name in ("INDEX_URL", "EXTRA_INDEX_URL"):
        monkeypatch.delenv(f"PIP_{name}", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("AV_CACHE", str(tmp_path / "cache"))
    return wheel


def test_fetched_once_and_found_without_an_index(shop: Path, tmp_path: Path) -> None:
    kept = shop.read_bytes()
    wheel = pinned_wheel("0.40.0", tmp_path / "patches")
    assert wheel == tmp_path / "cache" / "wheels" / FILE
    assert wheel.read_bytes() == kept
    assert list(wheel.parent.iterdir()) == [wheel]
    shop.unlink()
    assert pinned_wheel("0.40.0", tmp_path / "patches") == wheel


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 half", None])
def test_what_is_damaged_or_half_there_is_fetched_anew(
    shop: Path, tmp_path: Path, damage: bytes | None
) -> None:
    wheel = tmp_path / "cache" / "wheels" / FILE
    part = wheel.with_name(FILE + ".part")
    part.mkdir(parents=True)
    (part / FILE).write_bytes(b"left by a command that was killed")
    wheel.write_bytes(shop.read_bytes()[:-1] if damage is None else damage)
    assert pinned_wheel("0.40.0", tmp_path / "patches").read_bytes() == shop.read_bytes()
    assert list(wheel.parent.iterdir()) == [wheel]


def test_another_wheel_of_the_same_name_is_refused(shop: Path, tmp_path: Path) -> None:
    build_wheel(shop.parent, content="two = 2\n")
    with pytest.raises(PatchError, match=rf"pip brought {FILE} with sha256 [0-9a-f]+\)") as caught:
        pinned_wheel("0.40.0", tmp_path / "patches")
    assert caught.value.code is Code.PATCH_WHEEL
    assert not list((tmp_path / "cache" / "wheels").iterdir())


def test_a_wheel_that_nobody_serves(shop: Path, tmp_path: Path) -> None:
    shop.unlink()
    with pytest.raises(PatchError, match="No matching distribution found for vllm") as caught:
        pinned_wheel("0.40.0", tmp_path / "patches")
    assert caught.value.code is Code.PATCH_WHEEL
    assert "\n" not in str(caught.value)
    # The advice works: put by hand, it is taken.
    place = tmp_path / "cache" / "wheels" / FILE
    assert str(caught.value).endswith(f"or put that file at {place}")
    build_wheel(place.parent)
    write_pin(tmp_path / "patches", place)
    assert pinned_wheel("0.40.0", tmp_path / "patches") == place


def test_a_cache_that_can_only_be_read(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = pinned_wheel("0.40.0", tmp_path / "patches")
    monkeypatch.setattr("vllm_av.cache.os.access", lambda path, mode: False)  # root may write all
    assert pinned_wheel("0.40.0", tmp_path / "patches") == wheel
    wheel.unlink()
    with pytest.raises(SetupError, match="not writable"):
        pinned_wheel("0.40.0", tmp_path / "patches")


def test_a_damaged_wheel_that_nobody_serves(shop: Path, tmp_path: Path) -> None:
    place = tmp_path / "cache" / "wheels" / FILE
    place.parent.mkdir(parents=True)
    place.write_bytes(b"damaged")
    shop.unlink()
    sha256 = hashlib.sha256(b"damaged").hexdigest()
    with pytest.raises(PatchError, match=f"is another, with sha256 {sha256}; ") as caught:
        pinned_wheel("0.40.0", tmp_path / "patches")
    assert str(caught.value).endswith(f"put that file at {place} in place of the one there")
    assert place.read_bytes() == b"damaged"


def test_a_file_that_pip_would_not_bring_is_told_with_its_sum(shop: Path, tmp_path: Path) -> None:
    shop.write_bytes(b"no wheel")
    sha256 = hashlib.sha256(b"no wheel").hexdigest()
    with pytest.raises(PatchError, match=f"is invalid.; pip found {shop} with sha256 {sha256}"):
        pinned_wheel("0.40.0", tmp_path / "patches")


def test_a_failed_connection_is_told(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.unlink()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # where nobody listens
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    why = "No matching distribution .*; WARNING: .* after connection broken by .*refused"
    with pytest.raises(PatchError, match=why) as caught:
        pinned_wheel("0.40.0", tmp_path / "patches")
    assert "\n" not in str(caught.value)


def test_a_file_where_the_wheels_should_lie(shop: Path, tmp_path: Path) -> None:
    place = tmp_path / "cache" / "wheels"
    place.parent.mkdir()
    place.write_text("")
    with pytest.raises(SetupError, match=rf"cache of wheels .*{place}: File exists") as caught:
        pinned_wheel("0.40.0", tmp_path / "patches")
    assert caught.value.code is Code.CACHE_DIR


def test_a_pip_that_lies_where_the_user_stands_is_not_run(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.py").write_text("raise SystemExit('not this one')\n")
    monkeypatch.chdir(tmp_path)
    assert pinned_wheel("0.40.0", tmp_path / "patches").is_file()


def test_two_at_once(shop: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from vllm_av.patching.wheels import pinned_wheel; "
        "print(pinned_wheel('0.40.0', Path(sys.argv[1]), print))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "patches")]
    (tmp_path / "cache").mkdir()
    with _held(tmp_path / "cache" / "wheels"):  # so that both see that nothing is there
        both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        time.sleep(2)
    said = [one.communicate(timeout=60)[0].splitlines() for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert {Path(lines[-1]).read_bytes() for lines in said} == {shop.read_bytes()}
    assert sorted(len(lines) for lines in said) == [1, 2]  # one of them has fetched
    assert len(list((tmp_path / "cache" / "wheels").iterdir())) == 1


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    folder.mkdir()
    with locked(folder):
        yield


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"distribution": "torch"}, "distribution is 'torch'"),
        ({"version": "--pre"}, "version is '--pre'"),
        ({"version": "0.39.0"}, "version is '0.39.0'"),
        ({"file": "../vllm-0.40.0-py3-none-any.whl"}, "file is '../vllm"),
        ({"sha256": "abc"}, "sha256 is 'abc'"),
        ({"url": "x"}, "url is not known"),
        ({"sha256": '"'}, "Unterminated string"),
    ],
)
def test_a_damaged_pin(shop: Path, tmp_path: Path, changes: dict[str, str], why: str) -> None:
    write_pin(tmp_path / "patches", shop, **changes)
    with pytest.raises(PatchError, match=why) as caught:
        pinned_wheel("0.40.0", tmp_path / "patches")
    assert caught.value.code is Code.PATCH_SERIES


def test_a_version_without_a_pin(shop: Path, tmp_path: Path) -> None:
    with pytest.raises(PatchError, match=r"no wheel is pinned for vLLM 0\.41\.0") as caught:
        pinned_wheel("0.41.0", tmp_path / "patches")
    assert caught.value.code is Code.PATCH_NO_SERIES


def test_every_series_has_a_pin_of_its_own_version() -> None:
    found = versions(series_root())
    assert found
    for version in found:
        pin = read_pin(series_root(), version)
        assert pin.version == version
        assert "wheel.toml" not in stray(series_root() / version)


def test_the_tags_come_from_the_name() -> None:
    pin = Pin("vllm", "1", "vllm-1-cp38-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", "0")
    assert pin.tags == [
        "--implementation=cp",
        "--python-version=38",
        "--abi=abi3",
        "--platform=manylinux2014_x86_64",
        "--platform=manylinux_2_17_x86_64",
    ]
