"""Which layers a model of an architecture has: what vLLM's own model code would build.

Rule: an architecture that is not listed gives no layers at all rather than a guess.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from vllm_av.preflight.facts import LayerGroup, LayerKind
from vllm_av.preflight.model import shape
from vllm_av.preflight.model.fields import MOST_SIZE, Fields

Rule = Callable[[Fields], Iterable[LayerGroup]]


def groups(architecture: str, text: Fields, *, mm_prefix: bool = False) -> tuple[LayerGroup, ...]:
    """The layers of a model; empty where this package does not know the architecture.

    Args:
        architecture: the first of ``architectures``.
        text: its config, the language model's part.
        mm_prefix: vLLM's ``is_mm_prefix_lm``, which it asks of plain attention layers.

    Raises:
        CheckError: a key of the config that matters is wrong or missing.
    """
    rule = RULES.get(architecture)
    if rule is None:
        return ()
    found = shape.gathered(rule(text))
    if not mm_prefix:
        return found
    plain = {LayerKind.FULL, LayerKind.SLIDING}
    return tuple(replace(each, mm_prefix=each.kind in plain) for each in found)


def _plain(text: Fields) -> Iterable[LayerGroup]:
    """By ``layer_types``, where there are any, else all alike."""
    total = shape.layers(text)
    types = text.items("layer_types", total)
    if types is None:
        if shape.window(text):
            yield shape.attention(text, LayerKind.SLIDING, total, text.where("sliding_window"))
        else:
            yield shape.attention(text, LayerKind.FULL, total, text.where("num_hidden_layers"))
        return
    sliding = shape.window(text) is not None
    for each in types[:total]:
        kind = LayerKind.FULL
        if sliding and each == shape.SLIDING_ATTENTION:
            kind = LayerKind.SLIDING
        yield shape.attention(text, kind, 1, text.where("layer_types"))


def _qwen(text: Fields) -> Iterable[LayerGroup]:
    """Qwen 2 and 3 say with a switch of its own whether the window is used."""
    if not text.flag("use_sliding_window"):
        text = Fields({**text.values, "sliding_window": None}, text.source, text.code, text.path)
    return _plain(text)


def _gpt_oss(text: Fields) -> Iterable[LayerGroup]:
    """Every other layer, from the first, has a window; all have sinks."""
    total = shape.layers(text)
    sliding = (total + 1) // 2 if shape.window(text) else 0
    where = text.where("sliding_window")
    if sliding:
        yield shape.attention(text, LayerKind.SLIDING, sliding, where, sink=True)
    yield shape.attention(text, LayerKind.FULL, total - sliding, where, sink=True)


def _deepseek(text: Fields) -> Iterable[LayerGroup]:
    """MLA, sparse with an indexer from V3.2 on."""
    total = shape.layers(text)
    size = text.count("kv_lora_rank", most=MOST_SIZE) + text.count(
        "qk_rope_head_dim", most=MOST_SIZE, least=0, default=0
    )
    sparse = "index_topk" in text
    yield shape.attention(
        text,
        LayerKind.MLA_SPARSE if sparse else LayerKind.MLA,
        total,
        text.where("index_topk" if sparse else "kv_lora_rank"),
        size=size,
        key_value=1,
    )
    if sparse:
        yield LayerGroup(
            kind=LayerKind.INDEXER,
            count=total,
            head_size=text.count("index_head_dim", most=MOST_SIZE),
            num_heads=text.count("index_n_heads", most=MOST_SIZE),
            num_kv_heads=1,
            where=text.where("index_topk"),
        )


RULES: dict[str, Rule] = {
    "DeepseekV2ForCausalLM": _deepseek,
    "DeepseekV3ForCausalLM": _deepseek,
    "DeepseekV32ForCausalLM": _deepseek,
    "GptOssForCausalLM": _gpt_oss,
    "LlamaForCausalLM": _plain,
    "MiMoForCausalLM": _qwen,
    "MistralForCausalLM": _plain,
    "MixtralForCausalLM": _plain,
    "Qwen2ForCausalLM": _qwen,
    "Qwen2MoeForCausalLM": _qwen,
    "Qwen3ForCausalLM": _qwen,
    "Qwen3MoeForCausalLM": _qwen,
}
