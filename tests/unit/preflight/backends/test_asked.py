"""The process that asks vLLM's classes, and what is answered where it cannot."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.unit.preflight.backends.setups import group, setup
from vllm_av.preflight.backends.asked import AskedCapabilities
from vllm_av.preflight.backends.table import TableCapabilities
from vllm_av.preflight.backends.wire import fact, plain
from vllm_av.preflight.capabilities import LayerAnswer
from vllm_av.preflight.facts import LayerKind, Setup

ENDED = "the process ended without an answer"
LAYERS = (group(), group(LayerKind.SLIDING, sink=True), group(LayerKind.MLA))


def interpreter(at: Path, does: str) -> str:
    """A Python that does that in place of the question's module."""
    path = at / "python"
    path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{does}\n")
    path.chmod(0o755)
    return str(path)


def answering(at: Path) -> str:
    """One that answers as the table does, and writes down what it was asked and told."""
    root = Path(__file__).parents[4]
    return interpreter(
        at,
        f"""
sys.path.insert(0, {str(root)!r})
from vllm_av.preflight.backends.table import TableCapabilities
from vllm_av.preflight.backends.wire import fact, plain
from vllm_av.preflight.facts import LayerGroup, Setup
questions = json.load(sys.stdin)
with open({str(at / "asked")!r}, "a") as file:
    file.write(json.dumps([questions, sys.argv[1:], dict(os.environ)]) + "\\n")
answers = []
for each in questions:
    setup = fact(Setup, each["setup"])
    groups = [fact(LayerGroup, one) for one in each["groups"]]
    answers.append([TableCapabilities(setup.vllm).answer(setup, group) for group in groups])
print(json.dumps({{"answers": plain(answers)}}))
""",
    )


def test_a_question_and_an_answer_come_back_as_they_went() -> None:
    asked = setup("sm100", where={"block_size": "--block-size"}, features={"a": [1, None, "x"]})
    asked = replace(
        asked,
        target=replace(asked.target, groups=LAYERS),
        draft=replace(asked.draft, groups=LAYERS[:1]),
    )
    assert fact(Setup, json.loads(json.dumps(plain(asked)))) == asked
    for layers in LAYERS:
        found = TableCapabilities("0.33.0").answer(asked, layers)
        assert fact(LayerAnswer, json.loads(json.dumps(plain(found)))) == found


def test_what_is_no_json_goes_as_text() -> None:
    odd: Mapping[str, object] = MappingProxyType({"path": Path("/x"), "set": frozenset({1})})
    assert plain(odd) == {"path": "/x", "set": [1]}


def test_all_layers_are_asked_at_once_and_only_once(tmp_path: Path) -> None:
    asked = setup("sm90", environment={"VLLM_BATCH_INVARIANT": "1", "PATH": "/nowhere"})
    asked = replace(asked, target=replace(asked.target, groups=LAYERS))
    capabilities = AskedCapabilities(answering(tmp_path))
    for layers in LAYERS:
        expected = TableCapabilities("0.33.0").answer(asked, layers)
        assert capabilities.answer(asked, layers) == expected
    assert capabilities.failed is None
    (line,) = (tmp_path / "asked").read_text().splitlines()
    (question,), argv, environ = json.loads(line)
    assert argv == ["-m", "vllm_av.preflight.backends.ask", str(os.getpid())]
    assert [each["kind"] for each in question["groups"]] == [
        "full attention",
        "sliding window",
        "MLA",
    ]
    # vLLM reads the variables of the question, and loads no plugin
    assert environ["VLLM_BATCH_INVARIANT"] == "1"
    assert environ["VLLM_PLUGINS"] == ""
    assert environ["PATH"] == os.environ["PATH"]


def test_layers_that_the_target_does_not_have_are_asked_about_too(tmp_path: Path) -> None:
    capabilities = AskedCapabilities(answering(tmp_path))
    for kind in (LayerKind.FULL, LayerKind.MLA, LayerKind.FULL):
        found = capabilities.answer(setup("sm90"), group(kind))
        assert found == TableCapabilities("0.33.0").answer(setup("sm90"), group(kind))
    assert len((tmp_path / "asked").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("does", "why"),
    [
        ("raise ImportError('no vLLM here')", "ImportError: no vLLM here"),
        ("sys.exit(3)", "exit status 3"),
        ("print('not JSON'); print('a warning', file=sys.stderr)", ENDED),
        ("sys.exit('torn \\u202e')", '"torn \\u202e"'),
        ("print(json.dumps({'failed': 'x\\ny'}))", '"x\\ny"'),
        ("print('[]')", "no answer"),
        ("print('{}')", "no answer"),
        ("print(json.dumps({'failed': 'AttributeError: x'}))", "AttributeError: x"),
        ("time.sleep(60)", "no answer within 0.5 s"),
    ],
)
def test_where_the_classes_do_not_answer_the_table_does_and_says_why(
    does: str, why: str, tmp_path: Path
) -> None:
    capabilities = AskedCapabilities(interpreter(tmp_path, does), limit=0.5)
    found = capabilities.answer(setup("sm90"), group())
    expected = TableCapabilities("0.33.0").answer(setup("sm90"), group())
    assert capabilities.failed == why
    assert found.chosen is not None
    assert found.chosen.note == f"FA3; not asked: {why}"
    assert [each.source for each in found.candidates] == [
        each.source for each in expected.candidates
    ]
    # it is not tried again for every layer
    before = capabilities.failed
    capabilities.python = "/nowhere/python"
    capabilities.answer(setup("sm90"), group())
    assert capabilities.failed is before


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    capabilities = AskedCapabilities(str(tmp_path / "none"))
    assert capabilities.answer(setup("sm90"), group()).chosen is not None
    assert capabilities.failed == f"{tmp_path / 'none'}: No such file or directory"


def library(at: Path, does: str) -> None:
    """A vllm in that folder that does this when it is imported."""
    (at / "vllm").mkdir(parents=True)
    (at / "vllm/__init__.py").write_text(does)


def test_nothing_of_the_folder_that_the_user_stands_in_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    tell = f"open({str(tmp_path / 'run')!r}, 'a').write(__file__)\n"
    library(here, tell)
    for name in ("json", "torch", "enum"):
        (here / f"{name}.py").write_text(tell)
    library(tmp_path / "site", "raise ImportError('the one that is meant')")
    monkeypatch.chdir(here)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "../site"]))
    capabilities = AskedCapabilities()
    capabilities.answer(setup("sm90"), group())
    assert capabilities.failed == "ImportError: the one that is meant"
    assert not (tmp_path / "run").exists()


def test_an_interpreter_that_is_named_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(tmp_path)
    monkeypatch.chdir(tmp_path)
    capabilities = AskedCapabilities("./python")
    capabilities.answer(setup("sm90"), group())
    assert capabilities.failed is None


def test_the_process_ends_with_the_one_that_asks(tmp_path: Path) -> None:
    pid_of = tmp_path / "pid"
    waits = (
        "import os, pathlib, time\n"
        f"pathlib.Path({str(tmp_path / 'new')!r}).write_text(str(os.getpid()))\n"
        f"os.rename({str(tmp_path / 'new')!r}, {str(pid_of)!r})\n"
        "time.sleep(100)\n"
    )
    library(tmp_path / "site", waits)
    asks = (
        "from tests.unit.preflight.backends.setups import group, setup\n"
        "from vllm_av.preflight.backends.asked import AskedCapabilities\n"
        "AskedCapabilities().answer(setup('sm90'), group())\n"
    )
    root = Path(__file__).parents[4]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(root)])}
    asking = subprocess.Popen([sys.executable, "-c", asks], env=environ)
    try:
        wait_for(pid_of.exists)
        asking.send_signal(signal.SIGKILL)
    finally:
        asking.kill()
        asking.wait()
    asked = int(pid_of.read_text())
    wait_for(lambda: not runs(asked))


def wait_for(fact: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not fact():
        assert time.monotonic() < until
        time.sleep(0.05)


def runs(pid: int) -> bool:
    """Whether there is such a process, and it has not ended with nobody asking after it."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
