"""What vLLM applies to the target's logits and never to the drafter's: why a row may not teach.

vLLM hands it to a scorer as bits, ``target_only`` int32 ``[num_reqs]``. The words are those of a
trace's column ``masked``.

Rule: bit ``i`` is ``WORDS[i]``, in the order of vLLM's ``TargetOnly`` (our patch of that name; the
contract is tested). Neither vllm nor torch is imported.
"""

WORDS = (
    "top_k",
    "top_p",
    "min_p",
    "logit_bias",  # also allowed_token_ids and min_tokens, which vLLM keeps in one state
    "penalties",
    "bad_words",
    "thinking",
    "custom",
    "grammar",
)


def told(bits: int) -> str | None:
    """The words of a row's bits, joined by ``+``; None for 0, which may teach.

    Raises:
        ValueError: a bit that has no word.
    """
    if not 0 <= bits < 1 << len(WORDS):
        raise ValueError(f"{bits} holds bits that no word stands for")
    return "+".join(word for i, word in enumerate(WORDS) if bits >> i & 1) or None
