"""Where the cache folder lies."""

from pathlib import Path

import pytest

from vllm_av.cache import cache_dir
from vllm_av.errors import Code, SetupError


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("AV_CACHE", raising=False)


def test_without_variables_it_lies_in_the_home(tmp_path: Path) -> None:
    assert cache_dir() == tmp_path / "home/.cache/vllm_av"
    assert cache_dir().is_dir()


@pytest.mark.parametrize("relative", ["", "not/absolute"])
def test_an_empty_or_relative_xdg_folder_counts_as_unset(
    relative: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", relative)
    assert cache_dir() == tmp_path / "home/.cache/vllm_av"


def test_our_own_variable_goes_before_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg/vllm_av"
    monkeypatch.setenv("AV_CACHE", "~/mine")
    assert cache_dir() == tmp_path / "home/mine"


def test_the_home_of_a_user_who_does_not_exist_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AV_CACHE", "~no-such-user/x")
    with pytest.raises(SetupError, match="no-such-user") as caught:
        cache_dir()
    assert caught.value.code is Code.CACHE_DIR


def test_a_user_without_a_home_is_told_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_such_user(number: int) -> None:
        raise KeyError(number)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", no_such_user)
    with pytest.raises(SetupError, match="set AV_CACHE") as caught:
        cache_dir()
    assert caught.value.code is Code.CACHE_DIR
    monkeypatch.setenv("AV_CACHE", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"


def test_a_file_in_the_way_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AV_CACHE", str(tmp_path / "file"))
    with pytest.raises(SetupError) as caught:
        cache_dir()
    assert caught.value.code is Code.CACHE_DIR
    assert str(tmp_path / "file") in str(caught.value)
