"""The state goes to its file now and then and at the end, and comes back as it was."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vllm_av.state import file, keeper
from vllm_av.state.keeper import Keeper

WHO = {"who": "me"}


class Counts:
    """A scorer whose whole state is how often it was asked to observe."""

    def __init__(self) -> None:
        self.total = torch.zeros(3)
        self.steps = 0

    def observe(self) -> None:
        self.total += 1
        self.steps += 1

    def state_tensors(self) -> dict[str, torch.Tensor]:
        return {"total": self.total, "steps": torch.tensor([self.steps])}

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        if tensors["steps"].item() < 0:
            raise ValueError("nobody takes fewer than no steps")
        self.total.copy_(tensors["total"])
        self.steps = int(tensors["steps"].item())


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "state"
    keeper.close(tmp_path / "state")


def keep(path: Path, told: list[str] | None = None, **options: Any) -> tuple[Counts, Keeper]:
    scorer = Counts()
    return scorer, Keeper(scorer, path, WHO, [].append if told is None else told.append, **options)


def steps_in(path: Path) -> int:
    arrays = file.read(path, WHO)
    assert arrays["total"].tolist() == [float(arrays["steps"][0])] * 3  # of one moment
    return int(arrays["steps"][0])


def wait_until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("COPIES", 0.0), ("QUIET", 0.05), ("WRITES", 1000.0)):
        monkeypatch.setattr(keeper, name, seconds)


def test_a_server_that_is_quiet_has_its_state_written(path: Path) -> None:
    scorer, kept = keep(path)
    for count in (5, 12):
        for _ in range(scorer.steps, count):
            scorer.observe()
            kept.tick()
        wait_until(lambda count=count: path.exists() and steps_in(path) == count)
    assert kept._thread.is_alive()


def test_one_that_is_never_quiet_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "QUIET", 2.0)
    monkeypatch.setattr(keeper, "WRITES", 0.05)
    scorer, kept = keep(path)

    def written() -> bool:
        scorer.observe()
        kept.tick()
        return path.exists() and steps_in(path) > 3

    wait_until(written)


def test_a_copy_is_not_taken_at_every_step(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "COPIES", 1000.0)
    scorer, kept = keep(path)
    for _ in range(5):
        scorer.observe()
        kept.tick()
    wait_until(path.exists)
    assert steps_in(path) == 1
    kept.close()
    assert steps_in(path) == 5


def test_the_last_state_is_written_at_the_end(path: Path) -> None:
    scorer, kept = keep(path)
    for _ in range(3):
        scorer.observe()
    keeper.close(path)
    assert steps_in(path) == 3
    scorer.observe()
    kept.tick()
    kept.close()  # again is fine
    assert steps_in(path) == 3
    assert not kept._thread.is_alive()


def test_a_step_is_in_inference_mode_and_the_end_is_not(path: Path) -> None:
    told: list[str] = []
    scorer, kept = keep(path, told)
    with torch.inference_mode():
        kept.tick()
    scorer.observe()
    kept.close()
    assert told == []
    assert steps_in(path) == 1


def test_a_step_does_not_wait_for_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, entered = threading.Event(), threading.Event()
    write = file.write

    def slow(*arguments: Any) -> None:
        entered.set()
        assert held.wait(30)
        write(*arguments)

    monkeypatch.setattr(file, "write", slow)
    scorer, kept = keep(path)
    scorer.observe()
    kept.tick()
    assert entered.wait(30)
    for _ in range(100):  # while the first copy is on its way; its buffers are left alone
        scorer.observe()
        kept.tick()
    assert not path.exists()
    held.set()
    wait_until(lambda: path.exists() and steps_in(path) == 101)


def test_a_write_that_fails_is_told_once_and_tried_again(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "gone"
    told: list[str] = []
    scorer, kept = keep(folder / "state", told)
    for _ in range(3):
        kept.tick()
        wait_until(lambda: not kept._wanted.is_set())
    wait_until(lambda: told)
    assert len(told) == 1
    assert told[0].startswith("[AV-STATE-WRITE] the state cannot be written to")
    folder.mkdir()
    scorer.observe()
    keeper.close(folder / "state")
    assert steps_in(folder / "state") == 1


def test_a_refused_file_is_put_aside_before_the_first_write(path: Path) -> None:
    path.write_text("another's")
    scorer, _ = keep(path, refused=True)
    assert path.read_text() == "another's"
    scorer.observe()
    keeper.close(path)
    assert steps_in(path) == 1
    assert path.with_name("state.refused").read_text() == "another's"


ENDS = """
import sys
from pathlib import Path
import torch
from vllm_av.state.keeper import Keeper

class Counts:
    def state_tensors(self): return {"total": torch.ones(3), "steps": torch.tensor([1])}

def work(path):
    kept = Keeper(Counts(), Path(path), {"who": "me"}, print)
    if sys.argv[2] == "raise":
        raise SystemExit(3)

if __name__ == "__main__":
    import multiprocessing
    if sys.argv[2] in ("spawn", "fork"):
        child = multiprocessing.get_context(sys.argv[2]).Process(target=work, args=(sys.argv[1],))
        child.start(); child.join(); sys.exit(child.exitcode)
    work(sys.argv[1])
"""


@pytest.mark.parametrize("how", ["end", "raise", "spawn", "fork"])
def test_it_is_written_at_the_end_of_whatever_process(how: str, path: Path) -> None:
    program = path.with_name("ends.py")
    program.write_text(ENDS)
    done = subprocess.run([sys.executable, str(program), str(path), how], timeout=120)
    assert done.returncode == (3 if how == "raise" else 0)
    assert steps_in(path) == 1


# -- taken back


def test_it_goes_on_from_what_was_kept(path: Path) -> None:
    scorer, _ = keep(path)
    for _ in range(4):
        scorer.observe()
    keeper.close(path)
    again = Counts()
    keeper.load(again, file.read(path, WHO))
    assert (again.steps, again.total.tolist()) == (4, [4.0] * 3)


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"total": np.zeros(3, np.float32)}, "it has total and not steps, total"),
        (
            {"total": np.zeros(4, np.float32), "steps": np.array([1])},
            r"total is .*\(4,\)\) and not",
        ),
        ({"total": np.zeros(3), "steps": np.array([1])}, "torch.float64.* and not .*torch.float32"),
        ({"total": np.ones(3, np.float32), "steps": np.array([-1])}, "fewer than no steps"),
    ],
)
def test_what_does_not_fit_is_not_taken(arrays: file.Arrays, told: str) -> None:
    scorer = Counts()
    with pytest.raises(ValueError, match=told):
        keeper.load(scorer, arrays)
    assert (scorer.steps, scorer.total.tolist()) == (0, [0.0] * 3)
