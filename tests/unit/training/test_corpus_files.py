"""A corpus is of the requests that it was made for."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vllm_av.demo import checkpoint
from vllm_av.errors import TrainingError
from vllm_av.training import corpus, corpus_files, prompts
from vllm_av.training.corpus_files import about, belongs, described, join, parts
from vllm_av.training.prompts import Request

ASKED = [
    Request("docs", "one", "say one", 0.0),
    Request("instructions", "0", None, 1.0),
    Request("instructions", "1", None, 1.0),
    Request("code", "two.py:3", "say two", 1.0),
]
WORDS = {"say": 0, "one": 1, "two": 2, "else": 3}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Request]:
    """What is asked for in a part of three requests and one of one; it may be changed."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    monkeypatch.setattr(checkpoint, "smollm2", lambda: tmp_path)
    Tokenizer(WordLevel(WORDS, unk_token="else")).save(str(tmp_path / "tokenizer.json"))
    asked = list(ASKED)
    monkeypatch.setattr(corpus_files, "IN_FLIGHT", 3)
    monkeypatch.setattr(corpus_files, "INSTALMENTS", 1)
    monkeypatch.setattr(corpus_files, "requests", lambda number: asked)
    monkeypatch.setattr(
        prompts, "digest", lambda: "of " + json.dumps([str(each) for each in asked])
    )
    return asked


def _row(request: Request, prompt: list[int]) -> dict[str, Any]:
    return {"prompt": prompt, "answer": [3] * 16, "about": about(request)}


@pytest.fixture
def folder(asked: list[Request], tmp_path: Path) -> Path:
    """A whole corpus without notes; the target invented one request of two."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    first, second = parts(folder)
    first.write_text(json.dumps([_row(ASKED[0], [0, 1]), _row(ASKED[2], [3])]))
    second.write_text(json.dumps([_row(ASKED[3], [0, 2])]))
    join(folder)
    return folder


def test_a_corpus_without_a_note_is_taken_over_where_it_answers_todays_requests(
    folder: Path, asked: list[Request]
) -> None:
    assert belongs(folder)
    assert len(list(folder.glob("*.sha256"))) == 3
    asked[3] = replace(asked[3], text="say one")
    with pytest.raises(TrainingError, match=r"AV-TRAINING-WORK.*sequences\.json was made by anoth"):
        belongs(folder)


@pytest.mark.parametrize(
    ("number", "changed"),
    [
        (0, {"text": "say two"}),
        (0, {"source": "another"}),
        (1, {"text": "say one"}),
        (2, {"temperature": 0.0}),
        (3, {"workload": "docs"}),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_a_corpus_without_a_note_that_answers_others_is_refused(
    folder: Path, asked: list[Request], number: int, changed: dict[str, Any], whole: bool
) -> None:
    if not whole:
        (folder / "sequences.json").unlink()
    asked[number] = replace(asked[number], **changed)
    with pytest.raises(TrainingError, match="AV-TRAINING-WORK"):
        belongs(folder)


def test_a_corpus_that_is_not_what_its_parts_make_is_refused(folder: Path) -> None:
    rows = json.loads((folder / "sequences.json").read_text())
    (folder / "sequences.json").write_text(json.dumps([*rows[1:], rows[0]]))
    with pytest.raises(TrainingError, match="AV-TRAINING-WORK"):
        belongs(folder)


def test_parts_are_kept_and_only_what_is_missing_is_made(
    folder: Path, asked: list[Request]
) -> None:
    first, second = parts(folder)
    (folder / "sequences.json").unlink()
    second.unlink()
    assert not belongs(folder)
    asked[0] = replace(asked[0], text="else")
    with pytest.raises(TrainingError, match=f"AV-TRAINING-WORK.*{first.name}"):
        belongs(folder)


def test_an_instalment_more_keeps_the_parts_of_the_earlier(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert belongs(folder)
    (folder / "sequences.json").unlink()
    monkeypatch.setattr(corpus_files, "INSTALMENTS", 2)
    assert not belongs(folder)


@pytest.mark.parametrize("text", ["[", "[]", "[1]", "{}", '[{"round": 0}]'])
def test_a_damaged_list_of_sequences_is_refused(folder: Path, text: str) -> None:
    assert belongs(folder)
    (folder / "sequences.json").write_text(text)
    for read in (belongs, described):
        with pytest.raises(TrainingError, match=r"AV-TRAINING-WORK.*sequences\.json"):
            read(folder)


@pytest.mark.parametrize("text", ["[", "{}", "[1]", '[{"prompt": []}]'])
def test_a_damaged_part_is_refused(folder: Path, text: str) -> None:
    first, _ = parts(folder)
    (folder / "sequences.json").unlink()
    first.write_text(text)
    with pytest.raises(TrainingError, match=f"AV-TRAINING-WORK.*{first.name}"):
        belongs(folder)


def test_the_stage_refuses_what_is_of_other_requests(folder: Path, asked: list[Request]) -> None:
    corpus.run(folder.parent)
    del asked[1]
    with pytest.raises(TrainingError, match="AV-TRAINING-WORK"):
        corpus.run(folder.parent)
