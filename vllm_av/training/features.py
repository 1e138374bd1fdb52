"""What drafters see of the target: its hidden states over the corpus, computed in two processes.

``WORK/features/hidden.bin`` is a flat bfloat16 array ``[N, 4, 576]``, row ``n`` for token ``n`` of
the corpus: the residual stream as it enters layers 2, 15 and 27, then the output of the final norm,
whose product with the embedding is the target's logits.

Rule: a batch is marked as done after its rows are written, so a killed run goes on; the file has
its final name when every batch is.
"""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from vllm_av.demo.checkpoint import smollm2
from vllm_av.demo.settings import ENVIRONMENT
from vllm_av.training import corpus_files, reading
from vllm_av.training.processes import together
from vllm_av.training.whole import claim, of_file, part_of, require, unwritable

LAYERS = (2, 15, 27)
"""Whose inputs are kept. vLLM's ``aux_hidden_state_layers`` counts the same way."""
ROWS = len(LAYERS) + 1
HIDDEN = 576

_PROCESSES = 2
_TOKENS = 6144  # of a batch, padding included


def run(work: Path) -> None:
    """Compute the hidden states of ``work``'s corpus; does nothing where the file is whole."""
    folder = work / "features"
    final = folder / "hidden.bin"
    folder.mkdir(parents=True, exist_ok=True)
    belongs(work)
    if final.exists():
        return
    path = part_of(final)  # which outlives an error: what is done of it is not done again
    if not path.exists():
        lengths, instalments = _sequences(work)
        try:
            _empty(folder / "done.bin", len(batches(lengths, instalments)))
            _empty(path, _size(work))
        except OSError as error:
            raise unwritable(path, error) from error
    marks = (folder / "done.bin").read_bytes()
    there = len(marks) - marks.count(0)
    print(f"features: {there} of {len(marks)} batches are there", flush=True)
    together(
        "vllm_av.training.features",
        [[str(work), str(path), str(share)] for share in range(_PROCESSES)],
        ENVIRONMENT,
    )
    path.replace(final)


def belongs(work: Path) -> None:
    """See to it that what is there of ``work``'s hidden states is of ``work``'s corpus.

    A file that has no note of its corpus (``hidden.bin.sha256``) is taken for this one's, and gets
    the note, where its size is exactly right, ``done.bin`` has exactly this corpus's batches, and
    the file has its final name only with every batch done.

    Raises:
        TrainingError: ``AV-TRAINING-WORK`` if it is of another corpus.
    """
    corpus, final = work / "corpus", work / "features" / "hidden.bin"
    wanted = of_file(corpus / "ids.npy", corpus / "offsets.npy")
    claim(final, wanted, lambda: _fits(work))
    for file in (final, part_of(final)):
        if file.exists() and file.stat().st_size != _size(work):
            require(None, wanted, file)  # a shorter one would be filled up with zeros
    done = work / "features" / "done.bin"
    if part_of(final).exists() and (not done.exists() or done.stat().st_size != _count(work)):
        require(None, wanted, done)


def _fits(work: Path) -> bool:
    folder = work / "features"
    final, done = folder / "hidden.bin", folder / "done.bin"
    file = final if final.exists() else part_of(final)
    if not done.exists() or file.stat().st_size != _size(work):
        return False
    marks = done.read_bytes()
    return len(marks) == _count(work) and (file != final or all(marks))


def _count(work: Path) -> int:
    """Batches of the whole file."""
    return len(batches(*_sequences(work)))


def _size(work: Path) -> int:
    """Bytes of the whole file."""
    return int(reading.array(work / "corpus" / "offsets.npy")[-1]) * ROWS * HIDDEN * 2


def batches(lengths: np.ndarray, instalments: list[int]) -> list[list[int]]:
    """Sequences of one instalment and about one length, longest first, at most ``_TOKENS`` padded.

    Args:
        lengths: int64 ``[S]``.
        instalments: of each sequence, ascending; an earlier instalment's batches stay as they were.
    """
    made: list[list[int]] = []
    for sequence in np.lexsort((-lengths, np.array(instalments))).tolist():
        fits = (
            bool(made)
            and instalments[made[-1][0]] == instalments[sequence]
            and (len(made[-1]) + 1) * lengths[made[-1][0]] <= _TOKENS
        )
        if fits:
            made[-1].append(sequence)
        else:
            made.append([sequence])
    return made


def _sequences(work: Path) -> tuple[np.ndarray, list[int]]:
    """Length and instalment of each sequence of the corpus."""
    described = corpus_files.described(work / "corpus")
    lengths = np.diff(reading.array(work / "corpus" / "offsets.npy"))
    return lengths, [row["round"] for row in described]


def _empty(path: Path, size: int) -> None:
    """A file of ``size`` zero bytes."""
    with path.open("wb") as stream:
        stream.truncate(size)


def _compute(work: Path, path: Path, share: int) -> None:
    """Each ``_PROCESSES``-th batch, in this process."""
    from transformers import AutoModelForCausalLM

    corpus = work / "corpus"
    ids = torch.from_numpy(reading.array(corpus / "ids.npy")).long()
    offsets = reading.array(corpus / "offsets.npy")
    everything = batches(*_sequences(work))
    done = np.memmap(work / "features" / "done.bin", np.uint8, "r+")
    hidden = torch.from_file(
        str(path), shared=True, size=len(ids) * ROWS * HIDDEN, dtype=torch.bfloat16
    ).view(-1, ROWS, HIDDEN)
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(smollm2(), dtype=torch.bfloat16).model.eval()
    spans = list(pairwise(offsets.tolist()))
    for number in range(share, len(everything), _PROCESSES):
        if done[number]:
            continue
        rows = [spans[sequence] for sequence in everything[number]]
        # Causal attention: what is padded on the right changes nothing on its left.
        padded = torch.nn.utils.rnn.pad_sequence(
            [ids[start:end] for start, end in rows], batch_first=True
        )
        with torch.inference_mode():
            states = model(padded, output_hidden_states=True, use_cache=False).hidden_states
        stacked = torch.stack([*(states[layer] for layer in LAYERS), states[-1]], 2)
        for row, (start, end) in enumerate(rows):
            hidden[start:end] = stacked[row, : end - start]
        done[number] = 1
        if number % 20 == share:
            print(f"features: batch {number + 1} of {len(everything)}", flush=True)


if __name__ == "__main__":
    _compute(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
