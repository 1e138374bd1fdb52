"""The corpus's files: whose they are, and how its parts become one.

``WORK/corpus/`` holds ``ids.npy`` int32 ``[N]`` (all sequences, one after the other),
``offsets.npy`` int64 ``[S + 1]``, ``prompt_lengths.npy`` int32 ``[S]`` and ``sequences.json``, a
list of ``{"workload", "source", "temperature", "held_out", "round"}``, the last being the number
of the instalment (:func:`vllm_av.training.prompts.requests`) that brought the sequence. They are
joined of ``part-INSTALMENT-NUMBER.json``, each with the answers to one batch of requests.

Rule: a part, and the whole, has a note of the requests that it answers; one without a note is
taken over only where what it holds are their answers.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from vllm_av.training import prompts, reading
from vllm_av.training.prompts import INSTALMENTS, Request, requests
from vllm_av.training.whole import claim, digest, written

IN_FLIGHT = 256
"""Requests of a part, which are in the engine together."""

_FEWEST_TOKENS = 16  # of an answer; a shorter one has no chain of drafts to learn from
_MOST_TOKENS = 416  # of prompt and answer

Batch = list[tuple[int, Request]]
"""Requests with their numbers, which are their seeds."""


def parts(folder: Path) -> dict[Path, Batch]:
    """The corpus's parts in order, each with its requests, which depend on no other part's."""
    found: dict[Path, Batch] = {}
    for instalment in range(INSTALMENTS):
        everything = list(enumerate(requests(instalment), instalment << 24))
        for start in range(0, len(everything), IN_FLIGHT):
            part = folder / f"part-{instalment}-{start // IN_FLIGHT:02}.json"
            found[part] = everything[start : start + IN_FLIGHT]
    return found


def about(request: Request) -> dict[str, Any]:
    """What the corpus says of an answer to ``request``."""
    fields = asdict(request)
    del fields["text"]
    return fields


def belongs(folder: Path) -> bool:
    """Whether the corpus in ``folder`` is whole; what is there answers the requests of today.

    Raises:
        TrainingError: ``AV-TRAINING-WORK`` if it answers others, or is damaged.
    """
    final = folder / "sequences.json"
    claim(final, prompts.digest(), lambda: _was_joined(folder))
    if final.exists():
        described(folder)
        return True
    for part, batch in parts(folder).items():
        _claim(part, batch)
    return False


def described(folder: Path) -> list[dict[str, Any]]:
    """What ``sequences.json`` says of each sequence.

    Raises:
        TrainingError: ``AV-TRAINING-WORK`` if it is not there, or does not fit the arrays.
    """
    final = folder / "sequences.json"
    rows: list[dict[str, Any]] = reading.json_of(final, list)
    names = {"round", *about(Request("", "", None, 0.0))}
    if not rows or not all(isinstance(row, dict) and row.keys() == names for row in rows):
        raise reading.damaged(final, "is no list of what the corpus holds")
    lengths, offsets, ids = (
        reading.array(folder / name) for name in ("prompt_lengths.npy", "offsets.npy", "ids.npy")
    )
    if (len(rows), len(rows) + 1, int(offsets[-1])) != (len(lengths), len(offsets), len(ids)):
        raise reading.damaged(final, "and the arrays beside it are of different corpora")
    return rows


def join(folder: Path) -> None:
    """The parts become one corpus; ``sequences.json`` comes last and says that it is whole."""
    arrays, rows = _joined(folder)
    for name, array in arrays.items():
        with written(folder / name) as path, path.open("wb") as stream:
            np.save(stream, array)
    with written(folder / "sequences.json") as path:
        path.write_text(json.dumps(rows), encoding="utf-8")


def _joined(folder: Path) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """The arrays by their files' names, and the rows of ``sequences.json``."""
    rows = [
        row | {"round": int(part.stem.split("-")[1])}
        for part in parts(folder)
        for row in _rows(part)
    ]
    rows = [row for row in rows if len(row["answer"]) >= _FEWEST_TOKENS]
    sequences = [(row["prompt"] + row["answer"])[:_MOST_TOKENS] for row in rows]
    lengths = [0, *map(len, sequences)]
    arrays: dict[str, np.ndarray] = {
        "ids.npy": np.array([token for row in sequences for token in row], np.int32),
        "offsets.npy": np.cumsum(lengths, dtype=np.int64),
        "prompt_lengths.npy": np.array([len(row["prompt"]) for row in rows], np.int32),
    }
    return arrays, [row["about"] | {"round": row["round"]} for row in rows]


def _rows(part: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = reading.json_of(part, list)
    names = {"prompt", "answer", "about"}
    if not all(isinstance(row, dict) and row.keys() == names for row in rows):
        raise reading.damaged(part, "is no list of prompts with their answers")
    return rows


def _claim(part: Path, batch: Batch) -> None:
    wanted = digest("part", [(number, asdict(request)) for number, request in batch])
    claim(part, wanted, lambda: part.exists() and _answered(part, batch))


def _was_joined(folder: Path) -> bool:
    """Whether the corpus, which has no note, is what its parts make, and these are today's."""
    everything = parts(folder)
    if not all(part.exists() for part in everything):
        return False
    for part, batch in everything.items():
        _claim(part, batch)
    arrays, rows = _joined(folder)
    return rows == described(folder) and all(
        np.array_equal(array, reading.array(folder / name)) for name, array in arrays.items()
    )


def _answered(part: Path, batch: Batch) -> bool:
    """Whether ``part`` holds answers to ``batch`` in its order: texts that were given are in them.

    Of the requests that the target was to invent, some may have none.
    """
    from tokenizers import Tokenizer

    from vllm_av.demo.checkpoint import smollm2

    tokenizer = Tokenizer.from_file(str(smollm2() / "tokenizer.json"))
    rows = iter(_rows(part))
    row = next(rows, None)
    for _, request in batch:
        if row is not None and row["about"] == about(request):
            asked = tokenizer.decode(row["prompt"], skip_special_tokens=False)
            if request.text is not None and request.text not in asked:
                return False
            row = next(rows, None)
        elif request.text is not None:
            return False
    return row is None
