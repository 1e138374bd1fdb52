"""A state file is whole or refused, whatever happens to it or to who writes it."""

import io
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vllm_av.errors import Code, StateError
from vllm_av.state import file

WHO = {"target": "big 12ab", "num_speculative_tokens": 3, "scorer": "pooled_estimator"}
STATE = {
    "slopes": np.array([0.25, 0.5], np.float32),
    "sums": np.arange(12.0).reshape(4, 3),
    "counters": np.array([7, 2]),
}


def same(found: file.Arrays) -> bool:
    return found.keys() == STATE.keys() and all(
        value.dtype == STATE[name].dtype and np.array_equal(value, STATE[name])
        for name, value in found.items()
    )


def refusal(path: Path, who: Any = WHO) -> StateError:
    with pytest.raises(StateError) as caught:
        file.read(path, who)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file.write(tmp_path / "state", WHO, STATE)
    return tmp_path / "state"


def test_what_was_written_is_read(path: Path) -> None:
    assert same(file.read(path, WHO))
    assert [each.name for each in path.parent.iterdir()] == ["state"]
    # Readable without this package, and holding nothing that runs.
    with np.load(path, allow_pickle=False) as stored:
        assert json.loads(stored["identity"].tobytes()).items() >= {"version": 1, **WHO}.items()


def test_a_second_one_takes_the_place_of_the_first(path: Path) -> None:
    file.write(path, WHO, STATE | {"counters": np.array([9, 9])})
    assert file.read(path, WHO)["counters"].tolist() == [9, 9]


def test_no_file_is_no_damage(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        file.read(tmp_path / "none", WHO)


@pytest.mark.parametrize(
    ("who", "told"),
    [
        ({**WHO, "num_speculative_tokens": 5}, "num_speculative_tokens is 3 and not 5"),
        ({**WHO, "target": "big 99ff"}, 'target is "big 12ab" and not "big 99ff"'),
        ({**WHO, "rank": 1}, "rank is null and not 1"),
        ({"target": "big 12ab"}, 'scorer is "pooled_estimator" and not null'),
    ],
)
def test_another_s_is_refused_with_what_differs(who: Any, told: str, path: Path) -> None:
    error = refusal(path, who)
    assert error.code is Code.STATE_OTHER
    assert told in str(error)


def test_another_version_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "VERSION", 2)
    error = refusal(path)
    assert error.code is Code.STATE_OTHER
    assert "version is 1 and not 2" in str(error)


def test_no_byte_can_change_without_notice(path: Path) -> None:
    """Bytes that mean nothing may change; those that do are found."""
    content = path.read_bytes()
    refused = 0
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 0xFF
        path.write_bytes(changed)
        try:
            found = file.read(path, WHO)
        except StateError:
            refused += 1
        else:
            assert same(found), place
    assert refused > 0.6 * len(content)


def test_a_part_is_no_state(path: Path) -> None:
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        assert refusal(path).code is Code.STATE_DAMAGED


@pytest.mark.parametrize("what", ["folder", "text", "list", "pickle", "huge", "bare"])
def test_what_is_no_state_file_is_refused(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    if what == "folder":
        path.mkdir()
    elif what == "text":
        path.write_text("slope: 0.5\n")
    elif what == "huge":
        monkeypatch.setattr(file, "LARGEST", 100)
        file.write(path, WHO, STATE)
    else:
        buffer = io.BytesIO()
        identity = np.frombuffer(b"[1]", np.uint8)
        if what == "pickle":
            np.savez(buffer, identity=np.array([{}], object))
        elif what == "list":
            np.savez(buffer, identity=identity)
        else:
            np.savez(buffer, slopes=STATE["slopes"])
        path.write_bytes(buffer.getvalue())
    assert refusal(path).code is Code.STATE_DAMAGED


def test_refused_files_are_all_kept(path: Path) -> None:
    for number in range(3):
        path.write_text(str(number))
        file.put_aside(path)
        file.put_aside(path)  # nothing is there any more
    assert not path.exists()
    for number, name in enumerate(["state.refused", "state.refused-2", "state.refused-3"]):
        assert path.with_name(name).read_text() == str(number)


def test_what_has_no_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        assert "it is not an ordinary file" in str(refusal(tmp_path / name))


def test_the_file_keeps_its_mode(path: Path) -> None:
    path.chmod(0o640)
    file.write(path, WHO, STATE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_write_that_fails_leaves_what_was_there(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateError, match=r"AV-STATE-WRITE.*No space left"):
        file.write(path, WHO, STATE | {"counters": np.array([0, 0])})
    assert same(file.read(path, WHO))
    assert [each.name for each in path.parent.iterdir()] == ["state"]


WRITES = """
import sys
from pathlib import Path
import numpy as np
from vllm_av.state import file
for n in range(10**9):
    file.write(Path(sys.argv[1]), {"who": 1}, {"a": np.full(2000, n), "b": np.full(2000, n)})
"""


def test_killed_at_any_moment_it_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    seen = []
    for number in range(6):
        writer = subprocess.Popen([sys.executable, "-c", WRITES, str(path)])
        try:
            before = path.stat().st_mtime_ns if path.exists() else 0
            deadline = time.monotonic() + 60
            while not (path.exists() and path.stat().st_mtime_ns != before):
                assert time.monotonic() < deadline
                time.sleep(0.001)
            time.sleep(0.037 * number)
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        arrays = file.read(path, {"who": 1})
        assert np.array_equal(arrays["a"], arrays["b"])
        assert np.ptp(arrays["a"]) == 0
        seen.append(int(arrays["a"][0]))
    assert max(seen) > 0
    assert len(list(tmp_path.iterdir())) <= 1 + len(seen)
    file.clear_parts(path)
    assert list(tmp_path.iterdir()) == [path]
