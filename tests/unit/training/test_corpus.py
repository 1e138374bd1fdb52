"""Parts become one corpus, and its batches for the target's forward pass."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from tests.unit.training.made import eagle
from vllm_av.training import corpus_files, measure
from vllm_av.training.corpus_files import join
from vllm_av.training.features import batches
from vllm_av.training.measure import figures, line
from vllm_av.training.whole import written


def _row(source: str, prompt: list[int], answer: list[int]) -> dict[str, object]:
    about = {"workload": "docs", "source": source, "temperature": 1.0, "held_out": False}
    return {"prompt": prompt, "answer": answer, "about": about}


def test_sequences_lie_one_after_the_other_and_short_answers_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [_row("a", [1, 2], [*range(16)]), _row("short", [3], [4, 5])]
    second = [_row("b", [9], [7] * 20), _row("long", [8] * 300, [6] * 192)]
    (tmp_path / "part-0-00.json").write_text(json.dumps(first))
    (tmp_path / "part-1-00.json").write_text(json.dumps(second))
    (tmp_path / "part-01.json").write_text(json.dumps(first))  # as they were named once
    numbers = ("0-00", "1-00")
    monkeypatch.setattr(
        corpus_files, "parts", lambda folder: {folder / f"part-{n}.json": [] for n in numbers}
    )
    join(tmp_path)
    ids, offsets = np.load(tmp_path / "ids.npy"), np.load(tmp_path / "offsets.npy")
    assert offsets.tolist() == [0, 18, 39, 39 + 416]
    assert ids[:18].tolist() == [1, 2, *range(16)]
    assert ids[18:39].tolist() == [9] + [7] * 20
    assert (ids.dtype, offsets.dtype) == (np.int32, np.int64)
    assert np.load(tmp_path / "prompt_lengths.npy").tolist() == [2, 1, 300]
    described = json.loads((tmp_path / "sequences.json").read_text())
    found = [(row["source"], row["round"]) for row in described]
    assert found == [("a", 0), ("b", 1), ("long", 1)]


def test_each_sequence_is_computed_once_in_batches_that_fit() -> None:
    lengths = np.random.default_rng(0).integers(20, 417, 500)
    made = batches(lengths, [0] * 300 + [1] * 200)
    assert sorted(number for batch in made for number in batch) == list(range(500))
    padded = [len(batch) * lengths[batch].max() for batch in made]
    assert max(padded) <= 6144
    assert sum(padded) < 1.1 * lengths.sum()


def test_a_later_instalment_leaves_an_earlier_ones_batches_as_they_were() -> None:
    lengths = np.random.default_rng(1).integers(20, 417, 90)
    alone = batches(lengths[:60], [0] * 60)
    assert batches(lengths, [0] * 60 + [1] * 30)[: len(alone)] == alone


def test_a_file_that_was_not_finished_has_no_final_name(tmp_path: Path) -> None:
    final = tmp_path / "made.bin"

    def killed() -> None:
        with written(final) as path:
            path.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        killed()
    assert not final.exists()
    with written(final) as path:
        path.write_bytes(b"whole")
    assert final.read_bytes() == b"whole"
    assert sorted(tmp_path.iterdir()) == [final]


def test_acceptance_is_counted_without_the_targets_own_token() -> None:
    """Of 100 steps 80 accept the first draft, 20 the second too, none the third."""
    row = figures([100, 80, 20, 0, 0])
    assert row == {"steps": 100, "accepted": 1.0, "given": [0.8, 0.25, 0.0, 0.0]}
    assert "1.000 accepted a step" in line({"workload": "docs", "temperature": 0.0} | row)


def test_figures_of_one_checkpoint_leave_those_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "measure", lambda name, checkpoint: [figures([10, 5])])
    digests = []
    for content in (1.0, 2.0, 1.0):
        folder = eagle(tmp_path / str(content), fill=content)
        measure.run(tmp_path, "eagle", folder)
        digests.append(hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest())
    kept = sorted(tmp_path.glob("acceptance-eagle-*.json"))
    records = [json.loads(path.read_text()) for path in kept]
    assert sorted(record["weights"] for record in records) == sorted(digests[:2])


def test_an_engine_that_took_no_step_has_no_figures_to_divide() -> None:
    assert figures([0, 0, 0]) == {"steps": 0, "accepted": 0.0, "given": [0.0, 0.0]}
