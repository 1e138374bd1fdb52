"""Patches as mails for vLLM: what lies beside them, how they are cut, where they are written."""

import os
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.patching.trees import BODY, FILES, write_series
from vllm_av.errors import Code, PatchError
from vllm_av.patching.files import locked
from vllm_av.patching.series import Series
from vllm_av.patching.tree import Source, Tree
from vllm_av.patching.upstream import upstream_problems
from vllm_av.patching.upstream_export import PAGE, Staged, stage
from vllm_av.patching.upstream_mail import Mail
from vllm_av.patching.verify import tree_source, verify

A, B, C = (f"core/{letter}.patch" for letter in "abc")
CONFIG = "vllm/config.py"
TEST = """# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
def test_{name}():
    assert True
"""
DATA: Mapping[str, object] = {
    "tests": ["v1/test_{name}.py"],
    "related": [54011, 56831],
    "passed": 3,
    "failed_without": 2,
    "test_plan": "What {name} does.",
    "test_result": "",
}


def _config(*changes: tuple[str, str]) -> dict[str, bytes | None]:
    text = BODY
    for old, new in changes:
        text = text.replace(f"{old}\n", f"{new}\n")
    return {CONFIG: text.encode()}


FIRST = ("line_3 = 3", "line_3 = 3\nmore = 1")
SECOND = ("line_25 = 25", "line_25 = 250")
THIRD = ("more = 1", "more = 1\nstill_more = 2")


def _beside(root: Path, name: str, **changes: object) -> None:
    """Write the data and the test of ``core/<name>.patch``."""
    folder = root / "upstream"
    (folder / "core").mkdir(parents=True, exist_ok=True)
    (folder / "tests/v1").mkdir(parents=True, exist_ok=True)
    data = {key: value for key, value in {**DATA, **changes}.items() if value is not None}
    text = "".join(f"{key} = {_toml(value)}\n" for key, value in data.items())
    (folder / "core" / f"{name}.toml").write_text(text.replace("{name}", name))
    (folder / f"tests/v1/test_{name}.py").write_text(TEST.replace("{name}", name))
    (folder / "ran-on.toml").write_text('"0.32.0" = "a small vLLM"\n')


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"""{value}"""' if isinstance(value, str) else str(value)


@pytest.fixture
def series(root: Path) -> Series:
    steps = [_config(FIRST), _config(FIRST, SECOND), _config(FIRST, SECOND, THIRD)]
    for name in "abc":
        _beside(root, name)
    return write_series(root, *steps, names=[A, B, C], requires={C: A})


SOURCE = Source("small", "vllm", "0.32.0", FILES.get)


def _stage(root: Path, to: Path, only: str | None = None, source: Source = SOURCE) -> Staged:
    return stage(root, source, to, "0.32.0", only)


def _texts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_mail_has_the_headings_and_none_of_our_trailers(
    root: Path, series: Series, tmp_path: Path
) -> None:
    mail = _stage(root, tmp_path / "out").mails[2]
    message, _, changes = mail.text.decode().partition("\ndiff --git ")
    assert message.partition("\n\n")[2] == (
        "Purpose\n-------\n\nWhat it does.\n\nRelated: #54011, #56831\n\n"
        "Comes after:\n\n* [CPU] Step 0\n\n\n"
        "Test Plan\n---------\n\nWhat c does.\n\n    pytest tests/v1/test_c.py\n\n\n"
        "Test Result\n-----------\n\n3 passed; without the change, 2 of them fail. Run on a small"
        " vLLM, not\non a GPU.\n"
    )
    assert "Subject: [PATCH] [CPU] Step 2\n" in message
    assert changes.startswith("a/tests/v1/test_c.py b/tests/v1/test_c.py\nnew file mode 100644\n")
    assert "+def test_c():\n" in changes


def test_each_is_cut_for_what_it_needs_and_no_more(
    root: Path, series: Series, tmp_path: Path
) -> None:
    first, second, third = _stage(root, tmp_path / "out").mails
    assert (second.needs, third.needs) == ((), (first.file,))
    assert b"@@ -24,7 +24,7 @@" in series.patches[1].text
    assert b"@@ -23,7 +23,7 @@" in second.text  # without the line that the first adds


def _git(folder: Path, *arguments: str, text: bytes = b"") -> str:
    identity = {
        f"GIT_{who}_{what}": "someone@example.invalid"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        input=text,
        capture_output=True,
        env={**os.environ, **identity, "GIT_CONFIG_GLOBAL": "/dev/null"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_the_commands_of_the_page_sign_it_off(root: Path, series: Series, tmp_path: Path) -> None:
    _stage(root, tmp_path / "out")
    page = (tmp_path / "out" / PAGE).read_text()
    checkout = tmp_path / "git"
    for path, content in FILES.items():
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout / path).write_bytes(content)
    _git(checkout, "init", "-q")
    _git(checkout, "add", "-A")
    _git(checkout, "commit", "-q", "-m", "pristine")
    _git(checkout, "tag", "v0.32.0")
    commands = [line.strip() for line in page.splitlines() if line.startswith("    git ")]
    assert len(commands) == 3
    for command in commands:
        mails = " ".join(str(tmp_path / "out" / name) for name in ("0001-a.patch", "0003-c.patch"))
        words = command.partition("#")[0].replace("0001-... 0002-...", mails)
        subprocess.run(
            ["bash", "-ec", words],
            cwd=checkout,
            check=True,
            capture_output=True,
            env={
                **os.environ,
                "GIT_CONFIG_GLOBAL": "/dev/null",
                **{f"GIT_COMMITTER_{what}": "me@example.invalid" for what in ("NAME", "EMAIL")},
                **{f"GIT_AUTHOR_{what}": "me@example.invalid" for what in ("NAME", "EMAIL")},
            },
        )
    log = _git(checkout, "log", "--reverse", "--format=%s %an %(trailers:key=Signed-off-by)")
    signed = "me@example.invalid Signed-off-by: me@example.invalid <me@example.invalid>"
    assert [line for line in log.splitlines() if line][1:] == [
        f"[CPU] Step 0 {signed}",
        f"[CPU] Step 2 {signed}",
    ]
    both = BODY.replace("line_3 = 3\n", "line_3 = 3\nmore = 1\nstill_more = 2\n")
    assert (checkout / CONFIG).read_text() == both
    assert (checkout / "tests/v1/test_c.py").is_file()


@pytest.mark.parametrize(
    ("passed", "failed", "words"),
    [
        (1, 1, "1 passed; without the change, it fails."),
        (4, 4, "4 passed; without the change, all fail."),
        (4, 1, "4 passed; without the change, 1 of them fails."),
        (4, 3, "4 passed; without the change, 3 of them fail."),
    ],
)
def test_what_is_said_of_the_tests(
    passed: int, failed: int, words: str, root: Path, series: Series, tmp_path: Path
) -> None:
    _beside(root, "a", passed=passed, failed_without=failed)
    (mail,) = _stage(root, tmp_path / "out", A).mails
    assert words in mail.text.decode()


def test_a_mail_may_hold_more_than_ascii(root: Path, series: Series, tmp_path: Path) -> None:
    _beside(root, "a", test_plan="Whether the größe fits.")
    _stage(root, tmp_path / "out")
    checkout = tmp_path / "git"
    (checkout / CONFIG).parent.mkdir(parents=True)
    (checkout / CONFIG).write_bytes(FILES[CONFIG])
    _git(checkout, "init", "-q")
    _git(checkout, "add", "-A")
    _git(checkout, "commit", "-q", "-m", "pristine")
    _git(checkout, "am", "-q", str(tmp_path / "out/0001-a.patch"))
    assert "\nWhether the größe fits.\n" in _git(checkout, "log", "-1", "--format=%B")


def test_one_patch_comes_with_what_it_needs(root: Path, series: Series, tmp_path: Path) -> None:
    staged = _stage(root, tmp_path / "out", C)
    assert [mail.file for mail in staged.mails] == ["0001-a.patch", "0002-c.patch"]
    assert sorted(_texts(tmp_path / "out")) == ["0001-a.patch", "0002-c.patch", PAGE]
    with pytest.raises(PatchError, match=r"has no patch core/z\.patch") as error:
        _stage(root, tmp_path / "other", "core/z.patch")
    assert error.value.code is Code.PATCH_NO_SERIES


def test_the_same_bytes_again(root: Path, series: Series, tmp_path: Path) -> None:
    out = tmp_path / "deep/down/out"
    assert len(_stage(root, out).written) == 4
    before = _texts(out)
    assert _stage(root, out).written == ()
    (out / "0002-b.patch").write_bytes(b"edited")
    assert _stage(root, out).written == ("0002-b.patch",)
    assert _texts(out) == before


def test_what_a_killed_export_left_is_taken_away(
    root: Path, series: Series, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    _stage(root, out)
    before = _texts(out)
    (out / "0001-a.patch").unlink()
    for name in ("0001-a.patch.new", "0002-b.patch.new", f"{PAGE}.new"):
        (out / name).write_bytes(b"half of it")
    assert _stage(root, out).written == ("0001-a.patch",)
    assert _texts(out) == before
    (out / "0009-of-nobody.patch.new").write_bytes(b"")
    with pytest.raises(PatchError, match=r"holds 0009-of-nobody\.patch\.new, which is not"):
        _stage(root, out)
    (out / "0009-of-nobody.patch.new").unlink()
    (out / "0001-a.patch.new").mkdir()
    with pytest.raises(PatchError, match=r"holds 0001-a\.patch\.new, which is not"):
        _stage(root, out)


def test_an_export_waits_for_another_into_its_folder(
    root: Path, series: Series, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.setattr("vllm_av.patching.upstream_export.locked", partial(locked, wait_seconds=0))
    with locked(out), pytest.raises(PatchError) as error:
        _stage(root, out)
    assert error.value.code is Code.PATCH_BUSY
    assert _texts(out) == {}


def test_no_folder_of_somebody_else_is_written_to(
    root: Path, series: Series, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes").write_text("kept")
    with pytest.raises(PatchError, match="holds notes, which is not of this export"):
        _stage(root, mine)
    assert _texts(mine) == {"notes": b"kept"}
    with pytest.raises(PatchError, match="notes is no folder"):
        _stage(root, mine / "notes")
    with pytest.raises(PatchError, match=r"cannot write .*; the export is incomplete") as error:
        _stage(root, mine / "notes" / "below")
    assert error.value.code is Code.PATCH_WRITE


def test_pristine_files_of_another_version_are_refused(
    root: Path, series: Series, tmp_path: Path
) -> None:
    with pytest.raises(PatchError, match=r"small is vLLM 0\.33\.0, and the series is for 0\.32\.0"):
        _stage(root, tmp_path / "out", source=Source("small", "vllm", "0.33.0", FILES.get))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"tests": None}, "the key tests is missing"),
        ({"purpose": "x"}, "the key 'purpose' is not known"),
        ({"tests": []}, "it names no test"),
        ({"tests": "v1/test_b.py"}, "tests is no list of str"),
        ({"tests": ["../test_b.py"]}, "'../test_b.py' is no path of a test"),
        ({"tests": ["v1/nosuch/test_b.py"]}, "its test v1/nosuch/test_b.py cannot be read"),
        ({"related": ["54011"]}, "related is no list of int"),
        ({"passed": 0}, "passed is 0, not the number of at least one test"),
        ({"failed_without": 0}, "failed_without is 0, not the number of at least one test"),
        ({"failed_without": 4}, "of 3 tests that pass, 4 fail without it"),
        ({"test_plan": " "}, "test_plan is empty"),
        ({"test_plan": "as\n--- a\n"}, "git would take '--- a' for the end of the message"),
        ({"test_result": "with vllm_av"}, "test_result mentions vllm_av"),
        ({"test_result": 7}, "test_result is no text"),
    ],
)
def test_what_is_wrong_beside_a_patch_is_told_by_its_name(
    changes: dict[str, Any], told: str, root: Path, series: Series, tmp_path: Path
) -> None:
    assert upstream_problems(root, [A, B, C]) == []
    _beside(root, "b", **changes)
    problem, *_ = upstream_problems(root, [A, B, C])
    assert problem.startswith(f"{B}: ")
    assert told in problem
    with pytest.raises(PatchError) as error:
        _stage(root, tmp_path / "out")
    assert error.value.code is Code.PATCH_UPSTREAM
    assert error.value.given == problem
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("def test():\n    pass\n", "does not begin with vLLM's two SPDX lines"),
        (TEST + "import vllm_av\n", "mentions vllm_av"),
        (TEST + "def\n", "does not compile"),
        (TEST.rstrip("\n"), "does not end with a newline"),
    ],
)
def test_what_is_wrong_with_a_test_is_told(
    content: str, told: str, root: Path, series: Series
) -> None:
    (root / "upstream/tests/v1/test_b.py").write_text(content.replace("{name}", "b"))
    (problem,) = upstream_problems(root, [A, B, C])
    assert problem.startswith(f"{B}: its test v1/test_b.py {told}")


def test_nothing_lies_there_that_belongs_to_nobody_or_to_two(root: Path, series: Series) -> None:
    upstream = root / "upstream"
    (upstream / "core/d.toml").write_text("")
    (upstream / "tests/test_alone.py").write_text("")
    _beside(root, "b", tests=["v1/test_a.py", "v1/test_b.py"])
    assert upstream_problems(root, [A, B, C]) == [
        f"{B}: its test v1/test_a.py belongs to {A} already",
        "upstream/core/d.toml: belongs to no patch",
        "upstream/tests/test_alone.py: belongs to no patch",
    ]
    (upstream / "core/a.toml").unlink()
    assert upstream_problems(root, [A, B, C]) == [f"{A}: upstream/core/a.toml is missing"]
    (upstream / "ran-on.toml").write_text('"0.33.0" = "another"\n')
    told = upstream_problems(root, [C])
    assert told == [f"{C}: ran-on.toml has no version whose series lists it"]


def test_what_the_newest_vllm_needs_no_longer_is_not_sent(root: Path, tmp_path: Path) -> None:
    write_series(root, _config(FIRST), _config(FIRST, SECOND), names=[A, B])
    write_series(root, _config(FIRST), names=[A], version="0.33.0")
    _beside(root, "a")
    assert upstream_problems(root, [A, B]) == []
    assert [mail.patch for mail in _stage(root, tmp_path / "out").mails] == [A]
    with pytest.raises(PatchError, match=r"core/b\.toml is missing"):
        _stage(root, tmp_path / "other", B)


def test_verify_tells_what_is_missing(tree: Tree, root: Path, series: Series) -> None:
    assert verify(root, tree_source(tree)).problems == ()
    (root / "upstream/core/b.toml").unlink()
    assert verify(root, tree_source(tree)).problems == (f"{B}: upstream/core/b.toml is missing",)


def test_a_series_of_ones_own_needs_nothing_beside_it(root: Path) -> None:
    write_series(root, _config(FIRST), names=[A])
    assert upstream_problems(root, [A]) == []


def test_a_mail_is_known_by_its_parts(root: Path, series: Series, tmp_path: Path) -> None:
    answer = _stage(root, tmp_path / "out", A).as_dict()
    assert answer["mails"] == (
        {
            "file": "0001-a.patch",
            "patch": A,
            "title": "[CPU] Step 0",
            "needs": (),
            "related": (54011, 56831),
            "tests": ("tests/v1/test_a.py",),
        },
    )
    assert "Signed-off-by" in answer["note"]
    assert Mail.__dataclass_fields__.keys() - answer["mails"][0].keys() == {"text"}
