"""A cost table is whole and this engine's, or refused; whatever lies at its path."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_av.budget.costs import stored, table
from vllm_av.budget.costs.identity import FIELDS, differences
from vllm_av.budget.costs.table import CostTable
from vllm_av.errors import Code, CostTableError

WHO: dict[str, Any] = {"target": "big", "num_speculative_tokens": 5, "capture_sizes": [1, 2, 4]}
CURVES = ([(1, 0.5), (8, 0.625)], [(1, 2.0), (16, 3.1), (40, 1 / 3)])
FILE, OTHER, WRITE = Code.COST_TABLE_FILE, Code.COST_TABLE_OTHER, Code.COST_TABLE_WRITE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    table.write(tmp_path / "costs.json", CostTable(WHO, CURVES))
    return tmp_path / "costs.json"


def refusal(path: Path, here: Any = WHO) -> CostTableError:
    with pytest.raises(CostTableError) as caught:
        stored.examine(path, here)
    assert "\n" not in str(caught.value)
    assert str(caught.value).isprintable()
    return caught.value


def test_what_was_written_is_read_to_the_last_bit(path: Path) -> None:
    found = stored.examine(path, WHO)
    assert found == CostTable(WHO, CURVES)
    assert [each.name for each in path.parent.iterdir()] == ["costs.json"]


def test_it_can_be_read_by_people_and_without_this_package(path: Path) -> None:
    text = path.read_text()
    assert json.loads(text) == {
        "format": "vllm_av cost table",
        "version": 1,
        "identity": WHO,
        "draft_ms_by_requests": [[1, 0.5], [8, 0.625]],
        "verify_ms_by_tokens": [[1, 2.0], [16, 3.1], [40, 1 / 3]],
    }
    assert len(text.splitlines()) == 11


@pytest.mark.parametrize(
    ("here", "told"),
    [
        ({"num_speculative_tokens": 3}, "num_speculative_tokens is 5 there and 3 here"),
        ({"target": "small"}, 'target is "big" there and "small" here'),
        ({"capture_sizes": [1, 2]}, "capture_sizes is [1, 2, 4] there and [1, 2] here"),
        ({"driver": None, "graph_mode": "FULL"}, 'graph_mode is null there and "FULL" here'),
        ({"num_speculative_tokens": True}, "num_speculative_tokens is 5 there and true here"),
        (
            {"vllm": "1", "torch": "2", "series": "3", "target": "a", "threads": 7},
            'threads is null there and 7 here, vllm is null there and "1" here (and 2 more);',
        ),
    ],
)
def test_another_engine_s_is_refused_with_what_differs(here: Any, told: str, path: Path) -> None:
    content = path.read_bytes()
    error = refusal(path, here)
    assert error.code is OTHER
    assert told in str(error)
    assert path.read_bytes() == content


def test_only_what_is_known_is_compared(path: Path) -> None:
    assert stored.examine(path, {}) is not None
    assert stored.examine(path, {"target": "big"}) is not None


def test_a_field_that_nobody_knows_is_a_difference() -> None:
    assert differences({**WHO, "moon": "full"}, WHO) == ['moon is "full" there and null here']


def test_every_field_is_named_in_the_docs() -> None:
    text = (Path(__file__).parents[3] / "docs/cost-table.md").read_text()
    for name, meaning in FIELDS.items():
        assert f"| `{name}` | {meaning} |" in text


def document(**changes: Any) -> dict[str, Any]:
    found = {
        "format": "vllm_av cost table",
        "version": 1,
        "identity": WHO,
        "draft_ms_by_requests": [[1, 0.5]],
        "verify_ms_by_tokens": [[1, 2.0]],
    } | changes
    return {name: value for name, value in found.items() if value is not ...}


DRAFT, VERIFY = "draft_ms_by_requests", "verify_ms_by_tokens"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (document(version=2), "its version is 2, and 1 is read"),
        (document(version=True), "its version is true, and 1 is read"),
        (document(version=1.0), "its version is 1.0, and 1 is read"),
        (document(format="npz"), 'it is not {"format": "vllm_av cost table", ...}'),
        (document(**{VERIFY: ...}), 'it has no key "verify_ms_by_tokens"'),
        (document(comment="mine"), 'it has the unknown key "comment"'),
        (document(identity=[1]), "its identity is [1], and not an object"),
        (document(**{DRAFT: []}), "is not a list of 1 to 10000 pairs"),
        (document(**{DRAFT: {"1": 2}}), "is not a list of 1 to 10000 pairs"),
        (document(**{DRAFT: [[n + 1, 1] for n in range(10_001)]}), "is not a list of 1 to"),
        (document(**{DRAFT: [[1, 2, 3]]}), "has [1, 2, 3], and not [size, ms]"),
        (document(**{DRAFT: [["1", 2]]}), 'has the size "1", and not 1 to 16777216'),
        (document(**{DRAFT: [[True, 2]]}), "has the size true, and not"),
        (document(**{DRAFT: [[0, 2]]}), "has the size 0, and not"),
        (document(**{DRAFT: [[10**400, 2]]}), "has the size 1000"),
        (document(**{VERIFY: [[1.0, 2]]}), "has the size 1.0, and not"),
        (document(**{VERIFY: [[1, -2.0]]}), "has the cost -2.0, and not 1e-06 to 1e+07 ms"),
        (document(**{VERIFY: [[1, 0]]}), "has the cost 0, and not"),
        (document(**{VERIFY: [[1, 1e300]]}), "has the cost 1e+300, and not"),
        (document(**{VERIFY: [[1, 5e-324]]}), "has the cost 5e-324, and not"),
        (document(**{VERIFY: [[1, None]]}), "has the cost null, and not"),
        (document(**{VERIFY: [[1, True]]}), "has the cost true, and not"),
        (document(**{VERIFY: [[1, "2"]]}), 'has the cost "2", and not'),
        (document(**{VERIFY: [[2, 1], [1, 2]]}), "do not ascend: 2, 1"),
        (document(**{VERIFY: [[1, 1], [1, 2]]}), "do not ascend: 1, 1"),
        ([1], 'it is not {"format"'),
        (None, 'it is not {"format"'),
    ],
)
def test_what_is_no_table_is_refused(content: Any, why: str, path: Path) -> None:
    path.write_text(json.dumps(content))
    error = refusal(path)
    assert error.code is FILE
    assert why in str(error)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is not JSON"),
        (b"{", "it is not JSON"),
        (b"\xff\xfe", "it is not UTF-8 text"),
        (b'{"format": 1, "format": 2}', 'the key "format" is given twice'),
        (b'{"verify_ms_by_tokens": [[1, NaN]]}', "NaN is no JSON number"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "too many digits"),
        (b" " * (1 << 20) + b"{}", "it has more than 1 MiB"),
    ],
    ids=["empty", "brace", "binary", "twice", "nan", "deep", "digits", "huge"],
)
def test_what_is_no_json_is_refused(content: bytes, why: str, path: Path) -> None:
    path.write_bytes(content)
    error = refusal(path)
    assert error.code is FILE
    assert why in str(error)


def test_half_a_table_is_refused_wherever_it_ends(path: Path) -> None:
    content = path.read_bytes().rstrip()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        assert refusal(path).code is FILE


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for name in ("pipe", "folder"):
        assert "it is not an ordinary file" in str(refusal(tmp_path / name))
    for name in ("/dev/zero", "/dev/null"):
        assert refusal(Path(name)).code is FILE
    with pytest.raises(CostTableError, match="AV-COST-TABLE-FILE"):
        stored.place(str(tmp_path / "loop"))
    assert refusal(tmp_path / ("x" * 300)).code is FILE
    with pytest.raises(CostTableError, match="AV-COST-TABLE-FILE"):
        stored.place("a\0b")


def test_where_nothing_is_yet_something_must_be_writable(tmp_path: Path) -> None:
    assert stored.examine(tmp_path / "costs.json", WHO) is None
    error = refusal(tmp_path / "none" / "costs.json")
    assert error.code is WRITE
    assert "there is no such folder" in str(error)
    # It would itself fit, and what it is written beside would not.
    assert refusal(tmp_path / ("x" * 250)).code is WRITE
    assert refusal(Path("/proc/costs.json")).code is WRITE  # also of root
    assert list(tmp_path.iterdir()) == []


class Kept:
    """What a :class:`stored.StoredCosts` tells."""

    def __init__(self, path: Path, who: Any = WHO) -> None:
        self.failed: list[CostTableError] = []
        self.said: list[str] = []
        self.warned: list[str] = []
        inner: Any = None  # is not asked for costs
        self.policy = stored.StoredCosts(
            inner,
            path,
            lambda sizes: {**who, "capture_sizes": sizes},
            failed=self.failed.append,
            say=self.said.append,
            warn=self.warned.append,
        )


def test_a_policy_reads_what_another_has_written(tmp_path: Path) -> None:
    first, second = (Kept(tmp_path / "costs.json") for _ in range(2))
    assert first.policy.load_cost_curves([1, 2]) is None
    first.policy.save_cost_curves([1, 2], CURVES)
    assert second.policy.load_cost_curves([1, 2]) == CURVES
    assert (first.warned, second.warned, second.failed) == ([], [], [])
    assert "was measured, and written to" in first.said[0]
    assert "is not measured" in second.said[0]
    with pytest.raises(CostTableError, match="capture_sizes is"):
        second.policy.load_cost_curves([1, 2, 4])
    assert [error.code for error in second.failed] == [OTHER]


def test_a_table_that_came_in_the_meantime_is_not_written_over(tmp_path: Path) -> None:
    first = Kept(tmp_path / "costs.json")
    equal, other = Kept(tmp_path / "costs.json"), Kept(tmp_path / "costs.json", {"target": "x"})
    first.policy.save_cost_curves([1], CURVES)
    content = (tmp_path / "costs.json").read_bytes()
    equal.policy.save_cost_curves([1], ([(1, 9.0)], [(1, 9.0)]))
    other.policy.save_cost_curves([1], ([(1, 9.0)], [(1, 9.0)]))
    assert (tmp_path / "costs.json").read_bytes() == content
    assert (equal.warned, equal.said) == ([], [])
    (line,) = other.warned
    assert "[AV-COST-TABLE-OTHER]" in line


@pytest.mark.parametrize("curves", [([], CURVES[1]), ([(1, 0.0)], CURVES[1])])
def test_costs_that_could_not_be_read_again_are_not_written(curves: Any, tmp_path: Path) -> None:
    kept = Kept(tmp_path / "costs.json")
    kept.policy.save_cost_curves([1], curves)
    (line,) = kept.warned
    assert "[AV-COST-TABLE-WRITE]" in line
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    kept = Kept(tmp_path / "costs.json")
    monkeypatch.setattr(os, "fsync", full)
    kept.policy.save_cost_curves([1], CURVES)
    assert "No space left" in kept.warned[0]
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_one_and_a_mode_too(path: Path) -> None:
    path.chmod(0o640)
    link = path.with_name("link.json")
    link.symlink_to(path.name)
    assert stored.place(str(link)) == path.resolve()
    table.write(stored.place(str(link)), CostTable({"target": "x"}, CURVES))
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert table.read(path).identity == {"target": "x"}


def test_a_home_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert stored.place("~/costs.json") == (tmp_path / "costs.json").resolve()


WRITER = """
import sys
from pathlib import Path
from vllm_av.budget.costs import table
curves = ([(1, 1.0)], [(n, float(sys.argv[2])) for n in range(1, 4000)])
print("ready", flush=True)
while True:
    table.write(Path(sys.argv[1]), table.CostTable({"target": sys.argv[2]}, curves))
"""


def test_two_that_write_at_once_and_are_killed_leave_a_whole_table(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), number], stdout=subprocess.PIPE, text=True
        )
        for number in ("1", "2")
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        seen = set()
        end = time.monotonic() + 20
        while (len(seen) < 2 or not path.exists()) and time.monotonic() < end:
            if path.exists():
                found = table.read(path)
                owner = found.identity["target"]
                assert {cost for _, cost in found.curves[1]} == {float(owner)}
                seen.add(owner)
        assert seen == {"1", "2"}
    finally:
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            assert writer.stdout is not None
            writer.stdout.close()
    assert len(table.read(path).curves[1]) == 3999
    # What the killed ones began goes once nobody can still be writing it.
    begun = list(tmp_path.glob("*.part"))
    for part in begun:
        os.utime(part, (0, 0))
    fresh = tmp_path / "costs.json.7-0123abcd.part"
    fresh.write_text("{")
    table.write(path, CostTable(WHO, CURVES))
    assert sorted(tmp_path.iterdir()) == [path, fresh]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(_JSON, _JSON, _JSON)
def test_whatever_stands_there_is_a_table_or_told_in_a_line(
    tmp_path_factory: pytest.TempPathFactory, identity: Any, draft: Any, verify: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    content = document(**{"identity": identity, DRAFT: draft, VERIFY: verify})
    path.write_text(json.dumps(content))
    error = refusal(path)  # nothing of that is an identity like this one
    assert str(error).isascii()
    assert len(str(error)) < 1000


def test_a_file_of_the_users_beside_it_is_not_taken_for_a_part(path: Path) -> None:
    kept = [
        path.with_name(f"costs.json.{name}.part")
        for name in ("mine", "7", "7-ab", "x-0123abcd", "7-0123ABCD", "old.7-0123abcd")
    ]
    part = path.with_name("costs.json.7-0123abcd.part")
    for file in (*kept, part):
        file.touch()
        os.utime(file, (1, 1))
    table.write(path, CostTable(WHO, CURVES))
    assert sorted(path.parent.iterdir()) == sorted([path, *kept])


def test_a_path_with_control_characters_is_told_escaped(tmp_path: Path) -> None:
    error = refusal(tmp_path / "none\x1b[2J" / "costs.json")
    assert "\\u001b[2J" in str(error)
