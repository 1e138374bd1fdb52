"""Each run has its own logs, and those of older runs go."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from vllm_av.demo.logs import KEPT, own_logs
from vllm_av.errors import Code, SetupError


def _ended(count: int) -> list[Path]:
    folders = []
    for _ in range(count):
        with own_logs() as folder:
            (folder / "none.log").write_text("said")
        folders.append(folder)
    return folders


def test_two_runs_at_once_have_two_empty_folders(cache: Path) -> None:
    with own_logs() as first, own_logs() as second:
        assert first != second
        assert first.parent == second.parent == cache / "demo"
        assert not list(first.iterdir()) + list(second.iterdir())


def test_the_last_runs_logs_are_kept_and_older_ones_go(cache: Path) -> None:
    for number in range(KEPT + 2):
        (cache / f"demo/2000010{number}-000000-x").mkdir(parents=True)
    (folder,) = _ended(1)
    assert (folder / "none.log").read_text() == "said"
    left = sorted(path.name for path in (cache / "demo").iterdir())
    assert left[:-1] == [f"2000010{number}-000000-x" for number in range(3, KEPT + 2)]
    assert left[-1] == folder.name


def test_a_run_under_way_keeps_its_logs(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        monkeypatch.setattr("time.strftime", lambda _: "20000101-000000-")
        old = stack.enter_context(own_logs())
        monkeypatch.undo()
        monkeypatch.setenv("AV_CACHE", str(cache))
        _ended(KEPT + 1)
        assert old.is_dir()
    _ended(1)
    assert not old.exists()


def test_a_file_in_the_way_is_told(cache: Path) -> None:
    cache.mkdir()
    (cache / "demo").write_text("in the way")
    with pytest.raises(SetupError) as caught, own_logs():
        pass
    assert caught.value.code is Code.CACHE_DIR
