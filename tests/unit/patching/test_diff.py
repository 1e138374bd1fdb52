"""Diffs: git takes our text and we keep git's; what does not fit exactly is refused."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.patching.trees import BODY
from vllm_av.errors import Code, PatchError
from vllm_av.patching.diff import (
    REGULAR,
    apply_diff,
    blob_id,
    parse_diffs,
    render_diff,
    reverse_diff,
)
from vllm_av.patching.fold import render_change
from vllm_av.patching.script import tidy

needs_git = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")

# Few different lines, so that they repeat, and all that lines may be.
LINES = st.lists(
    st.sampled_from(["def f():\n", "    x\n", "    y\n", "\n", "z\r\n", "Größe\n", "_a\n", "\f\n"]),
    max_size=40,
)
ENDS = st.sampled_from(["", "end", "    x"])
TEXTS = st.builds(lambda lines, end: "".join([*lines, end]).encode(), LINES, ENDS)


def _git_trees_diff(folder: Path, old: bytes | None, new: bytes | None, name: str) -> bytes:
    """The same of a file of any name, which may come or go."""

    def git(*arguments: str) -> bytes:
        command = ["git", "-c", "core.quotepath=true", *arguments]
        return subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout.strip()

    trees = []
    (folder / "vllm").mkdir(parents=True)
    git("init", "-q")
    for content in (old, new):
        (folder / "vllm" / name).unlink(missing_ok=True)
        if content is not None:
            (folder / "vllm" / name).write_bytes(content)
        git("add", "-A")
        trees.append(git("write-tree").decode())
    return git("diff-tree", "-p", "--full-index", "--no-renames", *trees) + b"\n"


def _git_diff(folder: Path, old: bytes, new: bytes) -> bytes:
    """What ``git format-patch`` prints of a change of ``vllm/a.py``, from ``diff`` on."""
    for side, content in (("a", old), ("b", new)):
        (folder / side / "vllm").mkdir(parents=True, exist_ok=True)
        (folder / side / "vllm/a.py").write_bytes(content)
    command = "git -c core.quotepath=true diff --no-index --no-renames --full-index --no-prefix"
    done = subprocess.run([*command.split(), "a", "b"], cwd=folder, capture_output=True)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@needs_git
@given(old=TEXTS, new=TEXTS)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_git_s_diff_is_applied_and_written_again_byte_for_byte(
    tmp_path: Path, old: bytes, new: bytes
) -> None:
    text = _git_diff(tmp_path / "work", old, new)
    for diff in parse_diffs(text):
        result, script = apply_diff(diff, old)
        assert result == new
        script = tidy(old, new, script)
        assert render_diff(diff.path, old, new, script) == text
        assert apply_diff(reverse_diff(diff), new)[0] == old


@needs_git
@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        (None, b"a\n", "a.py"),
        (b"a\n", None, "a.py"),
        (None, b"", "a.py"),
        (b"", None, "a.py"),
        (b"a", b"a\n", "a b.py"),
        (b"a\n", b"b\n", 'grö"ß\\e\t.py'),
        (None, b"a", "größe x.py"),
    ],
)
def test_files_that_come_and_go_and_odd_names(
    tmp_path: Path, old: bytes | None, new: bytes | None, name: str
) -> None:
    text = _git_trees_diff(tmp_path / "work", old, new, name)
    (diff,) = parse_diffs(text)
    assert diff.path == f"vllm/{name}"
    result, script = apply_diff(diff, old)
    assert result == new
    again = render_diff(diff.path, old, new, script, diff.old_mode, diff.new_mode)
    assert again == text


@needs_git
@given(old=TEXTS, new=TEXTS)
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_git_accepts_our_diff_and_it_comes_back(tmp_path: Path, old: bytes, new: bytes) -> None:
    if old == new:
        return
    target = tmp_path / "vllm/a.py"
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(old)
    text = render_change("vllm/a.py", old, new)
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"], input=text, cwd=tmp_path, check=True
    )
    assert target.read_bytes() == new
    (diff,) = parse_diffs(text)
    result, script = apply_diff(diff, old)
    assert result == new
    assert render_diff(diff.path, old, new, tidy(old, new, script)) == text


def test_the_name_of_a_blob_is_git_s() -> None:
    # `printf 'hello\n' | git hash-object --stdin`
    assert blob_id(b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"


OLD = BODY.encode()
NEW = BODY.replace("line_9 = 9\n", "line_9 = 99\nx = 1\n").encode()
TEXT = render_change("vllm/a.py", OLD, NEW)


@pytest.mark.parametrize(
    ("old", "why"),
    [
        (None, "the file is missing"),
        (b"first = 0\n" + OLD, "line 7 is not 'line_6 = 6'"),
        (OLD.replace(b"line_7 = 7", b"line_7 = 77"), "line 8 is not 'line_7 = 7'"),
        (OLD.replace(b"line_9 = 9\n", b"line_9 = 9 \n"), "line 10 is not 'line_9 = 9'"),
        (NEW, "line 10 is not 'line_9 = 9'"),
        (OLD[:60], "line 7 is not"),
    ],
)
def test_no_fuzz_and_no_offset(old: bytes | None, why: str) -> None:
    (diff,) = parse_diffs(TEXT)
    with pytest.raises(PatchError, match=rf"vllm/a\.py: {why}") as caught:
        apply_diff(diff, old)
    assert caught.value.code is Code.PATCH_CONFLICT


def test_a_file_that_exists_is_not_made_again() -> None:
    (diff,) = parse_diffs(render_change("vllm/a.py", None, b"x\n"))
    with pytest.raises(PatchError, match="exists already"):
        apply_diff(diff, b"x\n")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ((b"-7,7 +7,8", b"-7,7 +8,8"), "would land at another line"),
        ((b"-7,7 +7,8", b"-8,7 +8,8"), "line 8 is not"),
        ((b"-7,7 +7,8", b"-7,6 +7,8"), "counts its lines wrong"),
        ((b"-7,7 +7,8", b"-7,9 +7,9"), "ends too early"),
        ((b"-7,7 +7,8", b"-seven +7"), "no hunk header"),
        ((b"a/vllm/a.py b/vllm/a.py", b"a/vllm/a.py b/vllm/b.py"), "is a rename"),
        ((b"vllm/a.py", b"../llm/a.py"), "outside the folder vllm/"),
        ((b"vllm/a.py", b"vllm/../a"), "outside the folder vllm/"),
        ((b"vllm/a.py", b"tests/a.py"), "outside the folder vllm/"),
        ((b"vllm/a.py", b"vllm/a\0.py"), "cannot stand in RECORD"),
        ((b"a/vllm/a.py b/vllm/a.py", b'"a/vllm/a\\n.py" "b/vllm/a\\n.py"'), "cannot stand in"),
        ((b"vllm/a.py", b"vllm/__pycache__/a.pyc"), "or is bytecode"),
        ((b"vllm/a.py", b"vllm/" + b"a" * 256), "longer than a file's name"),
        ((b"+7,8", b"+7," + b"9" * 5000), "no hunk header"),
        ((b"100644", b"120000"), "file mode '120000'"),
        ((b"index", b"similarity index 90%\nindex"), "is not understood"),
        ((b"index", b"old mode 100644\nnew mode 100755\nindex"), "is not understood"),
        ((b"\n line_6", b"\nline_6"), "no line of a hunk"),
    ],
)
def test_what_a_diff_may_not_be(change: tuple[bytes, bytes], why: str) -> None:
    with pytest.raises(PatchError, match=why):  # noqa: PT012
        (diff,) = parse_diffs(TEXT.replace(*change))
        apply_diff(diff, OLD)


def test_one_file_twice_is_refused() -> None:
    with pytest.raises(PatchError, match="changed twice in one patch"):
        parse_diffs(TEXT + TEXT)


@pytest.mark.parametrize(
    "change",
    [
        (b"index ", b"index 0"),
        (blob_id(OLD).encode(), blob_id(NEW).encode()),
        (b"+7,8 @@ line_5 = 5", b"+7,8 @@ line_4 = 4"),
        (b" line_6 = 6\n", b""),
        (b"-line_9 = 9\n+line_9 = 99\n", b"+line_9 = 99\n-line_9 = 9\n"),
        (b" line_8 = 8\n", b"-line_8 = 8\n+line_8 = 8\n"),
    ],
    ids=["id too long", "wrong id", "section", "context", "order", "needless"],
)
def test_what_applies_but_is_not_normal_does_not_come_back(change: tuple[bytes, bytes]) -> None:
    text = TEXT.replace(*change)
    assert text != TEXT
    if change[1] == b"":
        text = text.replace(b"-7,7 +7,8 @@ line_5 = 5", b"-8,6 +8,7 @@ line_6 = 6")
    try:
        (diff,) = parse_diffs(text)
    except PatchError:
        assert change[1] == b"index 0"
        return
    result, script = apply_diff(diff, OLD)
    assert result == NEW
    assert render_diff("vllm/a.py", OLD, NEW, tidy(OLD, NEW, script), REGULAR, REGULAR) == TEXT
