"""The order of batches and the reduced vocabulary."""

import torch

from tests.unit.training import blocks
from vllm_av.training.data import SequenceOrder, frequent


def test_a_batch_depends_on_its_step_alone() -> None:
    lengths = {number: 20 + number % 7 for number in range(23)}
    forwards = SequenceOrder(lengths, 4)
    expected = [forwards[step] for step in range(12)]
    backwards = SequenceOrder(lengths, 4)
    assert [backwards[step] for step in reversed(range(12))] == expected[::-1]


def test_an_epoch_holds_each_sequence_at_most_once_and_the_next_one_mixes_them_anew() -> None:
    batches = SequenceOrder(dict.fromkeys(range(23), 100), 4)
    epochs = [[batches[step] for step in range(start, start + 5)] for start in (0, 5)]
    for epoch in epochs:
        numbers = [number for batch in epoch for number in batch]
        assert len(numbers) == len(set(numbers)) == 20
    assert epochs[0] != epochs[1]


def test_a_batch_holds_sequences_of_about_one_length() -> None:
    lengths = {number: number + 1 for number in range(400)}
    batches = SequenceOrder(lengths, 8)
    spread = [max(batch) - min(batch) for batch in (batches[step] for step in range(50))]
    assert sum(spread) / len(spread) < 60


def test_the_vocabulary_is_what_is_most_frequent_in_ascending_order() -> None:
    ids = torch.tensor([5, 5, 5, 1, 1, 8, 8, 3, 0])
    assert frequent(ids, 10, 3).tolist() == [1, 5, 8]
    # Of 0 and 3, which are as frequent, the smaller.
    assert frequent(ids, 10, 4).tolist() == [0, 1, 5, 8]


def test_a_draft_token_leads_to_the_targets_and_back() -> None:
    corpus = blocks.corpus()
    drafted = torch.tensor([3, 0])
    tokens = drafted + corpus.d2t[drafted]
    assert tokens.tolist() == corpus.vocabulary[drafted].tolist()
    assert torch.equal(corpus.embedding[tokens], corpus.head[drafted])
    assert corpus.reduced[tokens].tolist() == [3, 0]
    assert (corpus.reduced < 0).sum() == blocks.VOCABULARY - blocks.REDUCED
