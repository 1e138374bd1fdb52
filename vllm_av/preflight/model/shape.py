"""Heads, head sizes and windows, as vLLM's ``ModelArchConfigConvertorBase`` reads them.

Rule: aliases and fallbacks stand in vLLM's order (``transformers_utils/config.py``,
``CONFIG_FIELD_ALIASES``; ``transformers_utils/model_arch_config_convertor.py``).
"""

from collections.abc import Iterable
from dataclasses import replace

from vllm_av.errors import CheckError
from vllm_av.preflight.facts import LayerGroup, LayerKind
from vllm_av.preflight.model.fields import MOST_HEADS, MOST_LAYERS, MOST_SIZE, MOST_TOKENS, Fields

_KV_HEADS = (
    "n_head_kv",
    "num_kv_heads",
    "num_key_value_heads",
    "multi_query_group_num",
    "num_attention_groups",
)
_HEADS = ("num_attention_heads", "n_head", "n_heads")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HIDDEN = ("hidden_size", "n_embd", "d_model")
_EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
_SHARING = ("falcon", "RefinedWeb", "RefinedWebModel", "gpt_bigcode")


def layers(text: Fields) -> int:
    """How many hidden layers there are."""
    return text.count(*_LAYERS, most=MOST_LAYERS)


def heads(text: Fields) -> int:
    """Query heads of a layer, of the whole model."""
    return text.count(*_HEADS, most=MOST_HEADS)


def shared_heads(text: Fields) -> tuple[int, int]:
    """Query and key-value heads as vLLM shares them out over ranks; 0 where none are said, and
    where blocks or layers have heads of their own."""
    if text.get(*_HEADS) is None or "block_configs" in text:
        return 0, 0
    try:
        return heads(text), kv_heads(text)
    except CheckError:
        return 0, 0  # a mistake is told where a layer needs it


def kv_heads(text: Fields) -> int:
    """Key-value heads of a layer, of the whole model."""
    if text.get("model_type") in _SHARING and not text.flag("new_decoder_architecture"):
        if text.flag("multi_query"):
            return 1
    elif text.get("model_type") == "dbrx" and (section := text.section("attn_config")):
        return section.count("kv_n_heads", most=MOST_HEADS, default=heads(text))
    return text.count(*_KV_HEADS, most=MOST_HEADS, default=heads(text))


def head_size(text: Fields) -> int:
    """Of attention that is not MLA."""
    if text.get("head_dim"):  # some classes write 0 for none
        return text.count("head_dim", most=MOST_SIZE)
    if "hidden_size_per_head" in text:
        return text.count("hidden_size_per_head", most=MOST_SIZE)
    hidden, number = text.count(*_HIDDEN, most=MOST_SIZE), heads(text)
    if hidden < number:
        raise text.wrong(text.where(*_HIDDEN), str(hidden), f"a size for {number:,} heads")
    return hidden // number


def experts(text: Fields) -> int:
    """Routed experts of a layer, 0 without."""
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str) and "E" not in pattern:
        return 0  # a model of Nemotron's kind without such layers, whatever its class says
    value = text.get(*_EXPERTS)
    if isinstance(value, list | tuple) and value:  # one for each kind of token, all the same
        text = text.replaced(**{name: value[0] for name in _EXPERTS if name in text})
    return text.count(*_EXPERTS, most=MOST_SIZE, least=0, default=0)


def window(text: Fields, name: str = "sliding_window") -> int | None:
    """The sliding window in tokens; None where there is none, which vLLM also takes 0 for."""
    return text.count(name, most=MOST_TOKENS, least=0, default=0) or None


def attention(
    text: Fields,
    kind: LayerKind,
    where: str,
    *,
    count: int = 1,
    sink: bool = False,
    size: int | None = None,
    query: int | None = None,
    key_value: int | None = None,
    backend: str | None = None,
) -> LayerGroup:
    """A group of attention layers with the model's own heads, where no others are given."""
    return LayerGroup(
        kind=kind,
        count=count,
        head_size=head_size(text) if size is None else size,
        num_heads=heads(text) if query is None else query,
        num_kv_heads=kv_heads(text) if key_value is None else key_value,
        where=where,
        sink=sink,
        backend=backend,
    )


def state(kind: LayerKind, where: str, *, count: int = 1, backend: str | None = None) -> LayerGroup:
    """A group of layers that keep a state and no keys: no heads that the selector asks for."""
    return LayerGroup(
        kind=kind,
        count=count,
        head_size=0,
        num_heads=0,
        num_kv_heads=0,
        where=where,
        backend=backend,
    )


def gathered(found: Iterable[LayerGroup]) -> tuple[LayerGroup, ...]:
    """The same layers with those that ask for the same counted together, in order of the first."""
    groups: dict[LayerGroup, int] = {}
    for each in found:
        key = replace(each, count=0)
        groups[key] = groups.get(key, 0) + each.count
    return tuple(replace(key, count=count) for key, count in groups.items() if count)
