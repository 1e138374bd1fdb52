"""``vllm-av trace replay``: text, JSON, one line and an exit code for every mistake."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.replay.synthetic import synthetic
from tests.unit.replay.traces import write
from vllm_av.cli.app import main


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace = synthetic(steps=60, requests=6)
    columns = {name: trace[name] for name in trace.columns}
    return write(tmp_path_factory.mktemp("traces") / "t.parquet", columns)


def called(*arguments: object) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["trace", "replay", *map(str, arguments)])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_text(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(path, "--from-step", 10) == 0
    out = capsys.readouterr().out
    assert out.startswith("online_estimator on ")
    for word in ("conditional, by temperature", "survival, by position", "odds/T", "gap"):
        assert word in out


def test_json_with_every_option(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--scorer", "upstream", "--set", "estimator.refit_interval=3", "--batch", 2]
    options += ["--temperature", 1, "--from-step", 5, "--json"]
    assert called(path, *options) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["scorer"] == "upstream"
    assert answer["counts"]["steps"] == 60 * 3 / 2
    assert answer["state"]["refits"] == 30
    assert [regime["name"] for regime in answer["regimes"]] == ["1"]
    assert answer["temperatures"] == [1.0]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--scorer", "nobody"], "AV-REPLAY-SCORER"),
        (["--set", "damping=3"], "AV-REPLAY-OPTION"),
        (["--set", "estimator.damping=-3"], "AV-CONFIG-RANGE"),
        (["--batch", "0"], "AV-REPLAY-OPTION"),
        (["--batch", "9" * 20], "AV-REPLAY-OPTION"),
        (["--from-step", "9" * 20], "AV-REPLAY-OPTION"),
        (["--temperature", "7"], "AV-REPLAY-EMPTY"),
        (["--from-step", "200"], "AV-REPLAY-EMPTY"),
        (["--scorer", "confidence_head", "--from-step", "0"], "AV-TRACE-COLUMN"),
        (["--batch", "many"], "AV-USAGE"),
    ],
)
def test_a_mistake_is_one_line(
    path: Path, options: list[str], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without options: 60 steps leave nothing from step 200 on."""
    assert called(path, *options) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert f"[{code}]" in captured.err


def test_without_scikit_learn_one_line_says_what_to_install(path: Path) -> None:
    """A user who installed the package without its extra."""
    program = f"""
import sys
sys.modules["sklearn"] = sys.modules["sklearn.linear_model"] = None
from vllm_av.cli.app import main
main(["trace", "replay", {str(path)!r}, "--from-step", "0"])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "[AV-TRACE-LIBRARY] scikit-learn" in done.stderr
    assert "vllm_av[traces]" in done.stderr
