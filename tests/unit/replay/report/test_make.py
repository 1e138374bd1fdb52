"""From a file to a page: what is written, what is refused, what the verb says."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.replay.report.reading import parse
from tests.unit.replay.synthetic import synthetic
from tests.unit.replay.traces import columns, every_column, write
from vllm_av.cli.trace import app
from vllm_av.errors import Code, ConfigError, TraceError
from vllm_av.replay.report.make import make
from vllm_av.replay.run import Wish, run


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "small.parquet", every_column())


def test_the_page_is_written_beside_nothing_else(trace: Path, tmp_path: Path) -> None:
    made = make(trace, tmp_path / "page.html")
    assert sorted(os.listdir(tmp_path)) == ["page.html", "small.parquet"]
    content = made.page.read_bytes()
    assert len(content) == made.bytes
    assert "small.parquet" in parse(content.decode()).all("header")[0].whole_text


def test_the_pages_name_is_the_traces(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert make(trace).page == Path("small.html")
    folder = tmp_path / "runs" / "eagle"
    folder.mkdir(parents=True)
    write(folder / "part-000000.parquet", columns())
    assert make(folder).page == Path("eagle.html")
    monkeypatch.chdir(folder)
    assert make(Path(".")).page == Path("eagle.html")
    assert {"small.html", "runs", "small.parquet", "eagle.html"} == set(os.listdir(tmp_path))


def test_an_older_page_is_replaced(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!DOCTYPE html><p>old")
    make(trace, page)
    assert "old" not in page.read_text()[:100]


@pytest.mark.parametrize(
    "name", ["small.parquet", "notes.txt", "folder", "no/page.html", "a\0b", "pipe"]
)
def test_what_is_no_page_is_left_alone(trace: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")  # nobody ever writes there
    before = trace.read_bytes()
    with pytest.raises(TraceError) as caught:
        make(trace, tmp_path / name)
    assert caught.value.code == Code.TRACE_REPORT
    assert "--out" in str(caught.value)
    assert trace.read_bytes() == before
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["folder", "notes.txt", "pipe", "small.parquet"]


def test_a_disk_that_refuses_leaves_the_old_page(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!doctype html>old")

    def full(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(TraceError, match="No space left on device"):
        make(trace, page)
    assert page.read_text() == "<!doctype html>old"
    assert sorted(os.listdir(tmp_path)) == ["page.html", "small.parquet"]


def test_a_wrong_wish_makes_no_page(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with pytest.raises(TraceError) as caught:
        make(trace, page, "nothing_such")
    assert caught.value.code == Code.REPLAY_SCORER
    with pytest.raises(ConfigError):
        make(trace, page, assignments=["estimator.damping=-1"])
    with pytest.raises(TraceError) as caught:
        make(tmp_path / "absent.parquet", page)
    assert caught.value.code == Code.TRACE_FILE
    assert not page.exists()


def test_the_verb_says_the_page_and_what_is_in_it(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["report", str(trace), "--out", str(page)])
    assert result.exit_code == 0, result.output
    first, *_, last = result.output.splitlines()
    assert "labelled drafts of small.parquet, up to 3 draft tokens a step" in first
    assert last.startswith(f"{page}: ")
    assert page.is_file()


def test_the_verb_answers_in_json(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    wish = ["--scorer", "pooled_estimator", "--set", "estimator.refit_interval=1", "--json"]
    result = CliRunner().invoke(app, ["report", str(trace), "--out", str(page), *wish])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["version"] == 1
    assert found["page"] == str(page)
    assert found["bytes"] == page.stat().st_size
    assert found["info"]["num_speculative_tokens"] == 3
    assert found["facts"]["rows"] == 9
    assert found["scorer"] == "pooled_estimator"
    (pooled,) = (p for p in found["predictors"] if p["key"] == "pooled_estimator")
    assert pooled["history"][-1][1]["refits"] == 7  # one a step, from a server's first
    assert found["says"][0].startswith(f"{found['facts']['total']['labels']} labelled drafts")


def test_a_report_says_what_a_replay_says(tmp_path: Path) -> None:
    made = synthetic(steps=600, requests=6, temperatures=(0.0, 0.7, 1.0))
    info = {"version": 1, "num_speculative_tokens": 3, "censoring": "none"}
    trace = write(tmp_path / "trace.parquet", dict(made.columns), info)
    settings = ("estimator.damping=33",)
    replayed = run(trace, Wish("pooled_estimator", settings)).tables
    report = make(trace, tmp_path / "page.html", "pooled_estimator", settings).report
    scorer = report.predictors[0]
    assert scorer.conditional.figures == replayed.overall.conditional
    assert scorer.survival.figures == replayed.overall.survival
    for part, own, product in zip(
        replayed.regimes, scorer.regimes, scorer.survival_regimes, strict=True
    ):
        assert (own.name, own.figures, product.figures) == (
            part.name, part.conditional, part.survival,
        )  # fmt: skip
    assert [p.figures for p in scorer.positions] == [p.conditional for p in replayed.positions]
    optimum = report.predictors[-1].conditional.figures.log_loss
    assert optimum == pytest.approx(replayed.overall.optimum.log_loss, abs=1e-9)
    assert {r.key: r.figures.log_loss for r in report.features if r.fitted} == pytest.approx(
        replayed.overall.optimum.pooled
    )


def test_the_verb_tells_mistakes_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(tmp_path / "absent"), "--json"])
    assert result.exit_code == 2
    assert json.loads(result.output)["error"]["code"] == "AV-TRACE-FILE"
