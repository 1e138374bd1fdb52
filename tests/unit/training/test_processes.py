"""No process outlives its stage, and no two make the same."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vllm_av.errors import TrainingError
from vllm_av.training.processes import alone, together

_CHILD = """
import os, sys, time
from pathlib import Path
here, what = Path(sys.argv[1]), sys.argv[2]
(here / what).write_text(str(os.getpid()))
if what == "fails":
    while not (here / "stays").exists():
        time.sleep(0.01)
    sys.exit(3)
time.sleep(60)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "a_child.py").write_text(_CHILD)
    root = Path(__file__).parents[3]
    return {"PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"}


def _ended(pid: int) -> bool:
    """Within ten seconds."""
    for _ in range(1000):
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.01)
    return False


def test_one_that_fails_ends_the_others(tmp_path: Path, environment: dict[str, str]) -> None:
    started = time.monotonic()
    with pytest.raises(TrainingError, match="process 1 of a_child ended with 3"):
        together("a_child", [[str(tmp_path), "stays"], [str(tmp_path), "fails"]], environment)
    assert time.monotonic() - started < 50
    assert _ended(int((tmp_path / "stays").read_text()))


def test_a_killed_stage_leaves_no_process(tmp_path: Path, environment: dict[str, str]) -> None:
    call = f"together('a_child', [[{str(tmp_path)!r}, 'stays']], {environment!r})"
    line = f"from vllm_av.training.processes import together; {call}"
    with subprocess.Popen([sys.executable, "-c", line], env=os.environ | environment) as stage:
        named = tmp_path / "stays"
        while not (named.exists() and named.read_text()):
            assert stage.poll() is None
            time.sleep(0.01)
        stage.send_signal(signal.SIGKILL)
    assert _ended(int(named.read_text()))


def test_a_stage_that_is_killed_while_its_processes_import_leaves_none(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """A process is tied to its stage before its module is read."""
    slow = "import os, time; from pathlib import Path\n"
    slow += f"Path({str(tmp_path / 'importing')!r}).write_text(str(os.getpid())); time.sleep(60)"
    (tmp_path / "slow_child.py").write_text(slow)
    line = "from vllm_av.training.processes import together; "
    line += f"together('slow_child', [[]], {environment!r})"
    with subprocess.Popen([sys.executable, "-c", line], env=os.environ | environment) as stage:
        named = tmp_path / "importing"
        while not (named.exists() and named.read_text()):
            assert stage.poll() is None
            time.sleep(0.01)
        stage.send_signal(signal.SIGKILL)
    assert _ended(int(named.read_text()))


def test_a_process_whose_stage_is_gone_before_it_begins_ends(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """1 is nobody's stage here: as if the one that started it had died."""
    command = [sys.executable, "-m", "vllm_av.training.processes", "1", "a_child", str(tmp_path)]
    gone = subprocess.run([*command, "stays"], env=os.environ | environment, timeout=50)
    assert gone.returncode == -signal.SIGKILL
    assert not (tmp_path / "stays").exists()


def test_a_mistake_in_a_process_is_told_in_a_line(
    tmp_path: Path, environment: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wrong_child.py").write_text(
        "from vllm_av.training.reading import damaged\nraise damaged('it', 'is cut')"
    )
    with pytest.raises(TrainingError, match="process 0 of wrong_child ended with 2"):
        together("wrong_child", [[]], environment)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: [AV-TRAINING-WORK] it is cut")


def test_a_second_process_waits_for_the_first(tmp_path: Path) -> None:
    line = (
        "import sys; from pathlib import Path; from vllm_av.training.processes import alone\n"
        "with alone(Path(sys.argv[1]), 'eagle'): print('in', flush=True)"
    )
    command = [sys.executable, "-c", line, str(tmp_path)]
    with alone(tmp_path, "eagle"):
        second = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert second.stdout is not None
        assert "another process makes it" in second.stdout.readline()
    with second:
        assert second.stdout.readline() == "in\n"
