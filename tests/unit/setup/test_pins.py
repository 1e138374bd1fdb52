"""Reading the lock, and what of it is whole in an environment."""

from pathlib import Path

import pytest

from ci.setup.pins import installed, read_pins, sweep
from vllm_av.errors import Code, SetupError

ROOT = Path(__file__).parents[3]


def _info(site: Path, name: str, *files: str) -> Path:
    folder = site / f"{name}.dist-info"
    folder.mkdir(parents=True)
    for file in files:
        (folder / file).write_text("")
    return folder


def test_comments_and_blank_lines_are_passed_over(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("# a comment\n\nJinja2==3.1.6\nmistral_common==1.13.1\ntorch==2.13.0+cpu\n")
    pins = {"jinja2": "3.1.6", "mistral-common": "1.13.1", "torch": "2.13.0+cpu"}
    assert read_pins(lock) == pins


@pytest.mark.parametrize(
    "line",
    [
        "torch",
        "torch>=2",
        "torch==",
        "==1",
        "a==1 --hash=sha256:0",
        "a==1; python_version",
        "a==\0",
    ],
)
def test_a_line_that_pins_nothing_is_named(line: str, tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"a==1\n{line}\n")
    with pytest.raises(SetupError, match=r"requirements\.lock:2") as caught:
        read_pins(lock)
    assert caught.value.code is Code.SETUP_LOCK


def test_a_lock_without_torch_is_none(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("a==1\n")
    with pytest.raises(SetupError, match="no torch") as caught:
        read_pins(lock)
    assert caught.value.code is Code.SETUP_LOCK


def test_what_pip_did_not_finish_is_not_installed(tmp_path: Path) -> None:
    _info(tmp_path, "mistral_common-1.13.1", "METADATA", "INSTALLER", "RECORD")
    _info(tmp_path, "torch-2.13.0+cpu", "METADATA")
    assert installed(tmp_path) == {"mistral-common": "1.13.1"}


def test_sweeping_leaves_what_is_whole_and_what_is_not_ours(tmp_path: Path) -> None:
    whole = _info(tmp_path, "a-1", "METADATA", "INSTALLER")
    half = _info(tmp_path, "b_c-1", "METADATA")
    foreign = _info(tmp_path, "made_by_hand-1", "METADATA")
    (tmp_path / "~umpy").mkdir()
    (tmp_path / "b_c").mkdir()
    assert sweep(tmp_path, ["a", "b-c"]) == ["b_c-1.dist-info", "~umpy"]
    assert whole.is_dir()
    assert foreign.is_dir()
    assert not half.exists()
    assert (tmp_path / "b_c").is_dir()
    assert sweep(tmp_path, ["a", "b-c"]) == []
