"""The corpus with the target's hidden states, as every trainer reads it, and the order of batches.

Rule: the batch of a step is a function of the step's number alone, so that a run that goes on
after it was killed sees what it would have seen.
"""

import hashlib
import json
import math
import random
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from vllm_av.demo.checkpoint import smollm2
from vllm_av.training import corpus_files, reading
from vllm_av.training.features import HIDDEN, ROWS, belongs
from vllm_av.training.leakage import kept_back
from vllm_av.training.prompts import WORKLOADS, held_out

REDUCED = 6144
"""Tokens of the reduced draft vocabulary."""

OTHERS = 1024
"""Tokens beside the frequent ones, drawn anew each step."""


@dataclass(frozen=True)
class Corpus:
    """All sequences, one after the other; ``S`` sequences, ``N`` tokens.

    Args:
        ids: int64 ``[N]``.
        offsets: ``S + 1`` numbers; sequence ``s`` is ``ids[offsets[s]:offsets[s + 1]]``.
        prompt_lengths: tokens of each sequence that the target did not write.
        workload: of each sequence.
        temperature: at which each answer was drawn.
        held_out: whether each sequence is kept from training.
        features: bfloat16 ``[N, 4, 576]``, read from the file as it is used: the residual stream
            into layers 2, 15 and 27, then the final norm's output.
        embedding: bfloat16 ``[49152, 576]``; the target's logits are ``features[:, 3] @
            embedding.T``.
        vocabulary: int64 ``[6144]``, ascending: the tokens that the training part has most of.
        left_out: how many of ``held_out`` were generated to be trained on, and are too near to
            what is measured.
    """

    ids: Tensor
    offsets: list[int]
    prompt_lengths: list[int]
    workload: list[str]
    temperature: list[float]
    held_out: list[bool]
    features: Tensor
    embedding: Tensor
    vocabulary: Tensor
    left_out: int = 0

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what is trained on; the features follow from it."""
        lists = self.prompt_lengths, self.temperature, self.held_out, self.offsets
        found = hashlib.sha256(json.dumps(lists).encode())
        for tensor in (self.ids, self.vocabulary):
            found.update(tensor.numpy().tobytes())
        return found.hexdigest()

    @cached_property
    def head(self) -> Tensor:
        """bfloat16 ``[6144, 576]``: the rows of the output head at the reduced vocabulary."""
        return self.embedding[self.vocabulary]

    @cached_property
    def reduced(self) -> Tensor:
        """int64 ``[49152]``: each token's number in the reduced vocabulary; -1 outside."""
        numbers = torch.full((len(self.embedding),), -1)
        numbers[self.vocabulary] = torch.arange(len(self.vocabulary))
        return numbers

    @property
    def d2t(self) -> Tensor:
        """int64 ``[6144]``: what vLLM adds to a draft token's number to get the target's."""
        return self.vocabulary - torch.arange(len(self.vocabulary))

    def some_tokens(self, step: int) -> tuple[Tensor, Tensor]:
        """The frequent tokens and some others, int64 ``[V]``, and a bias of their logits, ``[V]``.

        By the bias, each of the others stands for as many as were left out.
        """
        others = (self.reduced < 0).nonzero()[:, 0]
        generator = torch.Generator().manual_seed(step)
        drawn = others[torch.randperm(len(others), generator=generator)[:OTHERS]]
        bias = torch.zeros(len(self.vocabulary) + len(drawn))
        bias[len(self.vocabulary) :] = math.log(len(others) / max(len(drawn), 1))
        return torch.cat([self.vocabulary, drawn]), bias

    def sequences(self, held_out: bool) -> list[int]:
        """Numbers of the sequences of one part."""
        return [number for number, held in enumerate(self.held_out) if held is held_out]

    def batch(self, sequences: list[int]) -> "SequenceBatch":
        """``sequences``, padded on the right with zeros."""
        spans = [(self.offsets[number], self.offsets[number + 1]) for number in sequences]
        longest = max(end - start for start, end in spans)
        ids = torch.zeros(len(spans), longest, dtype=torch.int64)
        features = torch.zeros(len(spans), longest, ROWS, HIDDEN, dtype=torch.bfloat16)
        for row, (start, end) in enumerate(spans):
            ids[row, : end - start] = self.ids[start:end]
            features[row, : end - start] = self.features[start:end]
        return SequenceBatch(
            ids=ids,
            features=features,
            lengths=torch.tensor([end - start for start, end in spans]),
            prompt_lengths=torch.tensor([self.prompt_lengths[number] for number in sequences]),
        )


@dataclass(frozen=True)
class SequenceBatch:
    """``B`` sequences of at most ``T`` tokens.

    Args:
        ids: int64 ``[B, T]``.
        features: bfloat16 ``[B, T, 4, 576]``, see :class:`Corpus`.
        lengths: int64 ``[B]``.
        prompt_lengths: int64 ``[B]``.
    """

    ids: Tensor
    features: Tensor
    lengths: Tensor
    prompt_lengths: Tensor


def open_corpus(work: Path) -> Corpus:
    """What the stages ``corpus`` and ``features`` left in ``work``.

    Raises:
        TrainingError: ``AV-TRAINING-WORK`` if the corpus is of other requests than
            :func:`vllm_av.training.prompts.requests` gives, the features are of another corpus, or
            either is not whole.
    """
    folder = work / "corpus"
    corpus_files.belongs(folder)
    belongs(work)
    described = corpus_files.described(folder)
    ids = torch.from_numpy(reading.array(folder / "ids.npy")).long()
    offsets = reading.array(folder / "offsets.npy").tolist()
    prompts = [text for workload in WORKLOADS for _, text in held_out(workload)]
    kept = kept_back(described, _texts(ids, offsets), prompts)
    trained = [ids[offsets[n] : offsets[n + 1]] for n, held in enumerate(kept) if not held]
    embedding = target_embedding()
    return Corpus(
        ids=ids,
        offsets=offsets,
        prompt_lengths=reading.array(folder / "prompt_lengths.npy").tolist(),
        workload=[row["workload"] for row in described],
        temperature=[row["temperature"] for row in described],
        held_out=kept,
        # Not shared: a file too short is an error then, and not made longer.
        features=torch.from_file(
            str(work / "features" / "hidden.bin"),
            shared=False,
            size=len(ids) * ROWS * HIDDEN,
            dtype=torch.bfloat16,
        ).view(-1, ROWS, HIDDEN),
        embedding=embedding,
        vocabulary=frequent(torch.cat(trained), len(embedding), REDUCED),
        left_out=sum(kept) - sum(row["held_out"] for row in described),
    )


def _texts(ids: Tensor, offsets: list[int]) -> list[str]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(smollm2() / "tokenizer.json"))
    texts: list[str] = tokenizer.decode_batch(
        [ids[start:end].tolist() for start, end in pairwise(offsets)]
    )
    return texts


def target_embedding() -> Tensor:
    """bfloat16 ``[49152, 576]``: SmolLM2's embedding, which is its output head too."""
    return target_tensor("model.embed_tokens.weight")


def target_tensor(name: str) -> Tensor:
    """SmolLM2's weight ``name``, bfloat16."""
    from safetensors import safe_open

    with safe_open(smollm2() / "model.safetensors", "pt") as tensors:
        tensor: Tensor = tensors.get_tensor(name)
    return tensor


def frequent(ids: Tensor, vocabulary_size: int, count: int) -> Tensor:
    """The ``count`` tokens that ``ids`` has most of, ascending; of equals the smaller ones."""
    counts = torch.bincount(ids, minlength=vocabulary_size)
    return counts.argsort(descending=True, stable=True)[:count].sort().values


class SequenceOrder:
    """Which sequences step ``n`` trains on: each once an epoch, with others of about its length.

    Args:
        lengths: tokens of each sequence, by its number.
        size: sequences of a batch; those that do not fill the epoch's last batch wait for another.
    """

    def __init__(self, lengths: dict[int, int], size: int) -> None:
        self._lengths = lengths
        self._size = size
        self._per_epoch = len(lengths) // size
        self._epoch = (-1, [[0]])

    def __getitem__(self, step: int) -> list[int]:
        epoch, place = divmod(step, self._per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self._made(epoch))
        return self._epoch[1][place]

    def _made(self, epoch: int) -> list[list[int]]:
        draw = random.Random(epoch)
        # Lengths a little off, so that every epoch pairs other sequences.
        key = {number: length * draw.uniform(0.9, 1.1) for number, length in self._lengths.items()}
        numbers = list(key)
        draw.shuffle(numbers)
        numbers = sorted(numbers[: self._per_epoch * self._size], key=key.__getitem__)
        made = [numbers[at : at + self._size] for at in range(0, len(numbers), self._size)]
        draw.shuffle(made)
        return made
