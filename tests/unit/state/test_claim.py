"""One server to a state file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_av.errors import Code, StateError
from vllm_av.state.claim import Claim

HOLDS = """
import sys, time
from pathlib import Path
from vllm_av.state.claim import Claim
claim = Claim(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(120)
"""


def refusal(path: Path) -> StateError:
    with pytest.raises(StateError) as caught:
        Claim(path)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_second_one_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "state"
    first = Claim(path)
    assert refusal(path).code is Code.STATE_BUSY
    other = Claim(tmp_path / "other")
    first.release()
    first.release()
    Claim(path).release()
    other.release()


def test_a_killed_holder_holds_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state"
    command = [sys.executable, "-c", HOLDS, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        (tmp_path / f"state.{holder.pid}-0123abcd.part").write_text("half of")
        assert refusal(path).code is Code.STATE_BUSY
        assert (tmp_path / f"state.{holder.pid}-0123abcd.part").exists()  # which it may be writing
        holder.kill()
    claim = Claim(path)
    assert list(tmp_path.glob("*.part")) == []
    claim.release()


def test_another_file_s_parts_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "state2.7-0123abcd.part").write_text("half of")
    Claim(tmp_path / "state").release()
    assert (tmp_path / "state2.7-0123abcd.part").exists()


@pytest.mark.parametrize("what", ["no folder", "folder", "pipe", "device", "name"])
def test_a_place_that_cannot_be_written_is_refused(what: str, tmp_path: Path) -> None:
    path = tmp_path / "state"
    if what == "no folder":
        path = tmp_path / "none" / "state"
    elif what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path.symlink_to("/dev/null")
    else:
        path = tmp_path / "\0"
    assert refusal(path).code is Code.STATE_WRITE
