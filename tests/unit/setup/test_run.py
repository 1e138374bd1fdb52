"""Steps are done once, in order, go on after a failure, and survive being killed."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ci.setup.child import Runner, reason
from ci.setup.place import Place
from ci.setup.run import run
from ci.setup.steps import STEPS, Step
from vllm_av.errors import Code, SetupError

ROOT = Path(__file__).parents[3]


class Script:
    """Steps that only note that they ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.fails: set[str] = set()
        self.keys = {"venv": "1", "a": "1", "b": "1"}

    def steps(self) -> tuple[Step, ...]:
        return tuple(Step(name, self._key(name), self._work(name)) for name in self.keys)

    def _key(self, name: str) -> Callable[[Place], str]:
        return lambda place: self.keys[name]

    def _work(self, name: str) -> Callable[[Place, Runner], None]:
        def work(place: Place, runner: Runner) -> None:
            self.ran.append(name)
            if name in self.fails:
                raise SetupError(Code.SETUP_INSTALL, f"{name} broke", "whole", "mend it")
            place.stamps.mkdir(parents=True, exist_ok=True)
            place.venv_python.parent.mkdir(parents=True, exist_ok=True)
            place.venv_python.touch()

        return work

    def go(self, root: Path) -> tuple[int, list[str]]:
        self.ran = []
        return run(sys.executable, root, self.steps()), self.ran


def test_done_steps_are_not_done_again_and_say_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script()
    assert script.go(tmp_path) == (0, ["venv", "a", "b"])
    assert "[3/3] b: done" in capsys.readouterr().out
    assert script.go(tmp_path) == (0, [])
    assert capsys.readouterr() == ("", "")


def test_a_failed_step_is_named_and_the_next_run_goes_on_from_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script()
    script.fails = {"a"}
    assert script.go(tmp_path) == (2, ["venv", "a"])
    err = capsys.readouterr().err
    assert err.startswith("error: [AV-SETUP-INSTALL] a broke; whole; mend it\n")
    assert "set-up stopped at step [2/3] a" in err
    script.fails = set()
    assert script.go(tmp_path) == (0, ["a", "b"])


def test_a_change_redoes_its_step_and_all_after_it(tmp_path: Path) -> None:
    script = Script()
    script.go(tmp_path)
    script.keys["a"] = "2"
    assert script.go(tmp_path) == (0, ["a", "b"])
    script.keys["b"] = "2"
    assert script.go(tmp_path) == (0, ["b"])


def test_a_result_that_somebody_undid_is_made_again(tmp_path: Path) -> None:
    script = Script()
    script.go(tmp_path)
    *others, last = script.steps()
    script.ran = []
    for there in (True, False):
        steps = (*others, Step(last.name, last.key, last.work, lambda place, there=there: there))
        assert run(sys.executable, tmp_path, steps) == 0
        assert script.ran == ([] if there else ["b"])


def test_without_the_environment_everything_is_done_again(tmp_path: Path) -> None:
    script = Script()
    script.go(tmp_path)
    (tmp_path / ".venv").rename(tmp_path / "gone")
    assert script.go(tmp_path) == (0, ["venv", "a", "b"])


def test_an_environment_whose_python_is_gone_is_made_again(tmp_path: Path) -> None:
    script = Script()
    script.go(tmp_path)
    Place(tmp_path, "").venv_python.unlink()
    assert script.go(tmp_path) == (0, ["venv", "a", "b"])


def test_an_environment_of_somebody_else_is_never_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(tmp_path, sys.executable)
    place.lock.write_text("torch==1\n")
    place.venv_python.parent.mkdir(parents=True)
    place.venv_python.touch()
    first = Step("first", lambda place: "", lambda place, runner: None)
    for _ in range(2):
        assert run(sys.executable, tmp_path, (first, STEPS[1])) == 2
        assert "[AV-SETUP-VENV]" in capsys.readouterr().err
    assert place.venv_python.exists()


def test_a_half_written_stamp_does_not_count(tmp_path: Path) -> None:
    script = Script()
    script.go(tmp_path)
    stamp = Place(tmp_path, "").stamps / "b"
    stamp.write_text(stamp.read_text()[:10])
    assert script.go(tmp_path) == (0, ["b"])


def test_an_interrupted_step_ends_with_130(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(place: Place, runner: Runner) -> None:
        raise KeyboardInterrupt

    assert run(sys.executable, tmp_path, (Step("x", lambda place: "", interrupted),)) == 130
    assert "set-up interrupted at step [1/1] x" in capsys.readouterr().err


def _lack_disk() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a file")


@pytest.mark.parametrize("where", ["work", "key"])
def test_a_full_disk_is_one_line_that_names_the_step(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def key(place: Place) -> str:
        if where == "key":
            _lack_disk()
        return ""

    def work(place: Place, runner: Runner) -> None:
        _lack_disk()

    assert run(sys.executable, tmp_path, (Step("x", key, work),)) == 2
    line, where_it_stopped = capsys.readouterr().err.splitlines()
    assert line.startswith("error: [AV-SETUP-WRITE] the system refuses: [Errno 28] No space left")
    assert where_it_stopped.startswith("set-up stopped at step [1/1] x;")


def test_a_checkout_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "build").write_text("a file where the folder should be")
    assert run(sys.executable, tmp_path, ()) == 2
    assert capsys.readouterr().err.startswith("error: [AV-SETUP-WRITE] ")


def test_a_malformed_lock_is_one_line_that_names_the_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(tmp_path, sys.executable)
    place.lock.write_text("torch\n")
    assert run(sys.executable, tmp_path, STEPS[1:]) == 2
    line, where = capsys.readouterr().err.splitlines()
    assert line.startswith("error: [AV-SETUP-LOCK] requirements.lock:1: 'torch'; ")
    assert where.startswith("set-up stopped at step [1/6] environment;")


SLOW = """
import sys
from pathlib import Path
from ci.setup.run import run
from ci.setup.steps import Step

def work(place, runner):
    place.stamps.mkdir(parents=True, exist_ok=True)
    place.venv_python.parent.mkdir(parents=True, exist_ok=True)
    place.venv_python.touch()
    runner.run(["sh", "-c", sys.argv[2]])

sys.exit(run(sys.executable, Path(sys.argv[1]), (Step("slow", lambda place: "", work),)))
"""


def _start(root: Path, script: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(SLOW), str(root), script]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def _wait_for(path: Path) -> None:
    end = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < end, f"{path.name} never came"
        time.sleep(0.02)


def test_a_second_set_up_waits_and_finds_the_work_done(tmp_path: Path) -> None:
    script = f"echo x >> {tmp_path}/ran; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    first = _start(tmp_path, script)
    _wait_for(tmp_path / "ran")
    second = _start(tmp_path, script)
    with first, second:
        assert second.stdout is not None
        assert second.stdout.readline() == "waiting for another set-up of this checkout\n"
        (tmp_path / "go").touch()
        assert (first.wait(timeout=30), second.wait(timeout=30)) == (0, 0)
        assert second.stdout.read() == ""
    assert (tmp_path / "ran").read_text() == "x\n"


def test_after_a_kill_the_next_set_up_waits_for_the_orphan_and_goes_on(tmp_path: Path) -> None:
    script = (
        f"echo begin >> {tmp_path}/ran; "
        f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo end >> {tmp_path}/ran"
    )
    first = _start(tmp_path, script)
    _wait_for(tmp_path / "ran")
    with first:
        os.kill(first.pid, signal.SIGKILL)
        assert first.wait(timeout=30) == -signal.SIGKILL
    second = _start(tmp_path, script)
    with second:
        assert second.stdout is not None
        assert second.stdout.readline() == "waiting for another set-up of this checkout\n"
        (tmp_path / "go").touch()
        assert second.wait(timeout=30) == 0
    assert (tmp_path / "ran").read_text() == "begin\nend\nbegin\nend\n"


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (
            "Collecting x\nERROR: one\nERROR: No matching distribution\nnote\n",
            "ERROR: No matching distribution",
        ),
        ("Traceback\n  x\nImportError: no y\n\n", "ImportError: no y"),
        ("", "no output"),
    ],
)
def test_the_line_that_says_why(output: str, why: str) -> None:
    assert reason(output) == why
