"""What the tests hold the trainers' losses and corpora against."""

import torch
from torch import Tensor

from vllm_av.training.data import Corpus


def row_loss(target: Tensor, draft: Tensor) -> Tensor:
    """The loss of each row of logits, ``[..., V]`` to ``[...]``, with its graph."""
    p, log_q = target.softmax(-1), draft.log_softmax(-1)
    return 1 - torch.minimum(p, log_q.exp()).sum(-1) - 0.5 * (p * log_q).sum(-1)


def corpus(
    lengths: list[int],
    prompt: int,
    held_out: int,
    tokens: tuple[Tensor, Tensor, Tensor, Tensor],
    temperature: tuple[float, ...] = (1.0,),
) -> Corpus:
    """Texts of ``lengths`` with prompts of ``prompt`` tokens; one of them is ``held_out``.

    Args:
        lengths: of the texts.
        prompt: length of each prompt.
        held_out: the number of a text.
        tokens: ids, features, embedding and reduced vocabulary.
        temperature: of the texts, from the first again after the last.
    """
    ids, features, embedding, vocabulary = tokens
    count = len(lengths)
    return Corpus(
        ids=ids,
        offsets=torch.tensor([0, *lengths]).cumsum(0).tolist(),
        prompt_lengths=[prompt] * count,
        workload=["code"] * count,
        temperature=[temperature[n % len(temperature)] for n in range(count)],
        held_out=[n == held_out for n in range(count)],
        features=features,
        embedding=embedding,
        vocabulary=vocabulary,
    )
