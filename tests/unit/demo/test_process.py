"""Children of the demonstration: what they say arrives, and none of them outlives it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vllm_av.demo.figures import ArmResult
from vllm_av.demo.process import run_arm, telling_line
from vllm_av.demo.settings import Arm, Pair, Settings
from vllm_av.errors import Code, DemoError, SetupError

_PAIR = Pair(Path("model"), Path("drafter"))
_RESULT = ArmResult(start_seconds=1.5, loads=[], coefficients=None)

# Speaks as an arm does: job on stdin, events on the file descriptor that is the last argument.
_CHILD = """
import json, os, subprocess, sys, time
job = json.loads(sys.stdin.readline())
events = os.fdopen(int(sys.argv[-1]), "w")
def send(**event):
    print(json.dumps(event), file=events, flush=True)
def spawn():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    send(phase=str(child.pid), fraction=None)
"""


def _run(tmp_path: Path, body: str, seen: object = None) -> ArmResult:
    phases = seen if callable(seen) else lambda phase, fraction: None
    command = (sys.executable, "-c", _CHILD + body)
    log = tmp_path / "arm.log"
    return run_arm(Arm.FIXED, Settings(), _PAIR, log, phases, command)


def _gone(pid: int) -> bool:
    """Whether ``pid`` has ended within ten seconds (a zombie has)."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


def test_phases_and_the_result_arrive(tmp_path: Path) -> None:
    phases: list[tuple[str, float | None]] = []
    body = f"""
send(phase=job["arm"], fraction=None)
send(phase=str(job["settings"]["concurrency"]), fraction=0.5)
print("said to the log")
events.write('{{"result": ' + {_RESULT.model_dump_json()!r} + '}}')
"""
    assert _run(tmp_path, body, lambda *phase: phases.append(phase)) == _RESULT
    assert phases == [("fixed K", None), ("[1, 8]", 0.5)]
    assert (tmp_path / "arm.log").read_text() == "said to the log\n"


def test_the_childs_own_error_keeps_its_code(tmp_path: Path) -> None:
    error = DemoError(Code.DEMO_PROBE, "no runner", "one", "install it")
    with pytest.raises(DemoError) as caught:
        _run(tmp_path, f"send(error={error.as_dict()!r})")
    assert caught.value.as_dict() == error.as_dict()


def test_a_crash_is_told_by_the_line_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="ValueError: no such cache") as caught:
        _run(tmp_path, "raise ValueError('no such cache')")
    assert caught.value.code is Code.DEMO_ENGINE
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "arm.log") in caught.value.fix


def test_last_words_after_the_last_event_are_waited_for(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="ValueError: late"):
        _run(tmp_path, "events.close(); time.sleep(1); raise ValueError('late')")


def test_a_silent_death_is_told_too(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="it printed nothing"):
        _run(tmp_path, "import signal; os.kill(os.getpid(), signal.SIGKILL)")


def test_a_program_that_does_not_read_its_job_is_no_other_error(tmp_path: Path) -> None:
    log = tmp_path / "arm.log"
    with pytest.raises(DemoError) as caught:
        run_arm(Arm.NONE, Settings(), _PAIR, log, lambda *_: None, ("/bin/false",))
    assert caught.value.code is Code.DEMO_ENGINE


def test_a_log_that_cannot_be_opened_is_told_as_the_caches_fault(tmp_path: Path) -> None:
    (tmp_path / "arm.log").mkdir()
    with pytest.raises(SetupError) as caught:
        _run(tmp_path, "pass")
    assert caught.value.code is Code.CACHE_DIR


def test_a_log_that_somebody_removed_is_no_other_error(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="its log is gone") as caught:
        _run(tmp_path, f"os.unlink({str(tmp_path / 'arm.log')!r})")
    assert caught.value.code is Code.DEMO_ENGINE


@pytest.mark.parametrize("end", ["raise SystemExit(3)", "events.write('{\"result\": 1}')"])
def test_grandchildren_end_with_the_arm(tmp_path: Path, end: str) -> None:
    pids: list[int] = []
    with pytest.raises(ValueError if "result" in end else DemoError):
        _run(tmp_path, f"spawn()\n{end}", lambda phase, _: pids.append(int(phase)))
    assert _gone(*pids)


def test_the_group_is_killed_before_its_number_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[str] = []
    killpg = os.killpg

    def watched(group: int, number: int) -> None:
        states.append(Path(f"/proc/{group}/stat").read_text().rpartition(")")[2].split()[0])
        killpg(group, number)

    monkeypatch.setattr(os, "killpg", watched)
    with pytest.raises(DemoError):
        _run(tmp_path, "raise SystemExit(3)")
    assert states == ["Z"]  # it has ended, and is still there


def test_an_interrupt_ends_child_and_grandchild(tmp_path: Path) -> None:
    pids: list[int] = []

    def interrupt(phase: str, _: float | None) -> None:
        pids.append(int(phase))
        if len(pids) == 2:
            raise KeyboardInterrupt

    body = "send(phase=str(os.getpid()), fraction=None); spawn(); time.sleep(600)"
    with pytest.raises(KeyboardInterrupt):
        _run(tmp_path, body, interrupt)
    assert all(map(_gone, pids))


def test_a_real_arm_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from vllm_av.demo.process import run_arm
from vllm_av.demo.settings import Arm, Pair, Settings
pair = Pair(Path("none"), None)
run_arm(Arm.NONE, Settings(), pair, Path(sys.argv[1]), lambda *p: print(*p, flush=True))
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent:
        # Its first phase: vLLM takes seconds to import, so the arm is at work when the kill comes.
        assert parent.stdout.readline() == "importing vLLM None\n"
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        parent.send_signal(signal.SIGKILL)
    assert len(children) == 1
    assert _gone(int(children[0]))


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("INFO fine\nValueError: first\n\nThe above\nRuntimeError: last\nINFO bye\n", "last"),
        ("(EngineCore pid=7) ERROR 11-30 05:54:54 [core.py:1] KeyError: 'x'\n", "KeyError: 'x'"),
        ("pydantic.ValidationError: 1 validation error\nkey\n  too big\n  see\n", "key too big"),
        ("only this\n\n", "only this"),
        ("", "it printed nothing"),
    ],
)
def test_the_telling_line(tmp_path: Path, log: str, line: str) -> None:
    (tmp_path / "log").write_text(log)
    assert telling_line(tmp_path / "log").endswith(line)
