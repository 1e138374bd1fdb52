"""What else a request may ask for, with speculation and adaptive verification on the CPU.

Each option gives the tokens that it gives without speculation, while drafts are trimmed; or vLLM
refuses it by name.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.harness import TOKENS, Engine, verified_share

ALLOWED = list(range(500, 600))


def generate(engine: Engine, prompts: list[list[int]], **options: Any) -> list[list[int]]:
    from vllm import SamplingParams

    defaults = {"temperature": 0, "max_tokens": TOKENS, "ignore_eos": True}
    return engine.generate(prompts, SamplingParams(**(defaults | options)))


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.3},
        {"presence_penalty": 1.0, "frequency_penalty": 0.5},
        {"allowed_token_ids": ALLOWED},
        {"bad_words": [" the", " a"]},
        {"temperature": 1.0, "top_k": 1, "seed": 1},
        {"temperature": 1.0, "top_p": 1e-6, "seed": 1},
    ],
    ids=lambda options: " ".join(options),
)
def test_an_option_means_the_same_as_without_speculation(
    options: dict[str, Any],
    start: Callable[..., Engine],
    adaptive: Engine,
    prompts: list[list[int]],
    expected: list[list[int]],
) -> None:
    few = prompts[:4]
    right = generate(start(adaptive=False), few, **options)
    adaptive.price(4 * 8.0)
    with adaptive.recorded() as steps:
        assert generate(adaptive, few, **options) == right
    assert 0 < verified_share(steps) < 1
    if "temperature" in options:
        assert right == expected[:4]  # only the likeliest token is left
    else:
        assert right != expected[:4]
    if "allowed_token_ids" in options:
        assert {token for tokens in right for token in tokens} <= set(ALLOWED)


@pytest.mark.parametrize("option", [{"min_p": 0.1}, {"logit_bias": {504: 5.0}}])
def test_vllm_refuses_what_speculation_cannot_do(
    option: dict[str, Any], adaptive: Engine, prompts: list[list[int]]
) -> None:
    from vllm.exceptions import VLLMValidationError

    message = "not yet supported with speculative decoding"
    with pytest.raises(VLLMValidationError, match=message):
        generate(adaptive, prompts[:1], temperature=1.0, **option)


def test_structured_output(
    start: Callable[..., Engine], adaptive: Engine, prompts: list[list[int]]
) -> None:
    from vllm.sampling_params import StructuredOutputsParams

    pattern = r'\{"name": "[a-z]{2,8}", "age": [0-9]{1,3}\}'
    options = {
        "structured_outputs": StructuredOutputsParams(regex=pattern),
        "max_tokens": 40,
        "ignore_eos": False,
    }
    right = generate(start(adaptive=False), prompts[:4], **options)
    adaptive.price(4 * 8.0)
    with adaptive.recorded() as steps:
        tokens = generate(adaptive, prompts[:4], **options)
    assert tokens == right
    assert 0 < verified_share(steps) < 1
    for text in adaptive.llm.get_tokenizer().batch_decode(tokens, skip_special_tokens=True):
        assert json.loads(text).keys() == {"name", "age"}


def test_logprobs(start: Callable[..., Engine], adaptive: Engine, prompts: list[list[int]]) -> None:
    from vllm import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, logprobs=2)
    requests = [{"prompt_token_ids": prompt} for prompt in prompts[:4]]
    adaptive.price(4 * 8.0)
    right, seen = (
        engine.llm.generate(requests, params, use_tqdm=False)
        for engine in (start(adaptive=False), adaptive)
    )
    for a, b in zip(right, seen, strict=True):
        positions = zip(a.outputs[0].logprobs, b.outputs[0].logprobs, strict=True)
        for one, other in positions:
            assert one.keys() == other.keys()
            for token in one:
                assert one[token].logprob == pytest.approx(other[token].logprob, abs=1e-3)
