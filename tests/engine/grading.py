"""Predicted acceptance against what the target then said, inside an engine.

A prediction is what lay in the buffer that vLLM trims by, when the drafts were made. It has a label
where its draft was verified: those that were accepted, and the first that was not. vLLM may grade a
request in its first step, as if drafts that it never had were rejected: these have none.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch

from tests.engine.harness import Engine


class Graded(NamedTuple):
    """One verification of a batch: ``[requests, K]`` each.

    Attributes:
        predicted: float32, probabilities.
        accepted: bool.
        labelled: bool, whether there is a label.
    """

    predicted: np.ndarray
    accepted: np.ndarray
    labelled: np.ndarray


class Totals(NamedTuple):
    """Over all labelled rows, per position ``[K]``: how many, and two means."""

    labels: np.ndarray
    predicted: np.ndarray
    accepted: np.ndarray


@contextmanager
def graded(engine: Engine, since: int) -> Iterator[list[Graded]]:
    """The verifications inside the block, of drafts made after ``since`` refits and one more.

    Where no estimator learns, ``since`` is 0.
    """
    speculator = engine.runner.speculator
    propose, observe = speculator.propose, speculator.observe_verification
    add = speculator.add_request
    slots, steps = speculator.max_num_reqs, speculator.num_speculative_steps
    predicted = torch.full((slots, steps), torch.nan)
    position = torch.arange(steps)
    found: list[Graded] = []

    def see(
        idx_mapping: torch.Tensor, num_sampled: Any, num_rejected: Any, *others: Any, **named: Any
    ) -> None:
        accepted = (num_sampled - 1).clamp(min=0)[:, None].long()
        verified = accepted + num_rejected[:, None]
        labelled = (position <= accepted) & (position < verified)
        labelled &= ~predicted[idx_mapping].isnan()
        if not since or engine.estimator.refits > since:  # they were made after the refit
            row = Graded(predicted[idx_mapping], position < accepted, labelled)
            found.append(Graded(*(x.numpy().copy() for x in row)))
        observe(idx_mapping, num_sampled, num_rejected, *others, **named)

    def forget(slot: int) -> None:
        predicted[slot] = torch.nan
        add(slot)

    def keep(input_batch: Any, *arguments: Any, **options: Any) -> Any:
        drafts = propose(input_batch, *arguments, **options)
        rows = speculator.draft_token_confidence_probs[: input_batch.num_reqs]
        predicted[input_batch.idx_mapping[: input_batch.num_reqs]] = rows
        return drafts

    with (
        mock.patch.object(speculator, "add_request", forget),
        mock.patch.object(speculator, "propose", keep),
        mock.patch.object(speculator, "observe_verification", see),
    ):
        yield found


def totals(rows: Sequence[Graded]) -> Totals:
    predicted, accepted, labelled = (np.concatenate(x) for x in zip(*rows, strict=True))
    labels = labelled.sum(axis=0)
    means = [np.where(labelled, x, 0).sum(axis=0) / labels for x in (predicted, accepted)]
    return Totals(labels, *means)
