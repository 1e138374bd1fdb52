"""Requests under what only the target applies, one of each kind that vLLM takes to speculate."""

from typing import Any

ALLOWED = list(range(3, 40))


def constrained() -> dict[str, tuple[str, dict[str, Any]]]:
    """By name: the word that a request of the kind is masked by, and its sampling parameters."""
    from vllm.sampling_params import StructuredOutputsParams

    grammar = StructuredOutputsParams(regex="[a-z]{3} [0-9 ]{200}")
    return {
        "top-k": ("top_k", {"top_k": 2}),
        "top-p": ("top_p", {"top_p": 0.4}),
        "repetition penalty": ("penalties", {"repetition_penalty": 1.8}),
        "presence penalty": ("penalties", {"presence_penalty": 1.5}),
        "frequency penalty": ("penalties", {"frequency_penalty": 1.5}),
        "allowed tokens": ("logit_bias", {"allowed_token_ids": ALLOWED}),
        "minimum of tokens": ("logit_bias", {"min_tokens": 4, "stop_token_ids": [5]}),
        "bad words": ("bad_words", {"bad_words": ["the", " a", ","]}),
        "grammar": ("grammar", {"structured_outputs": grammar}),
    }
