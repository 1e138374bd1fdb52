"""Models that mix attention with layers that keep a state: Mamba, convolutions, linear attention.

Rule: of a layer that has both, both are told.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from vllm_av.preflight.facts import LayerGroup, LayerKind
from vllm_av.preflight.model import attention, latent, shape
from vllm_av.preflight.model.fields import MOST_LAYERS, MOST_SIZE, Fields, NotSaidError

_MAMBA = ("mamba", "mamba2", "M", "linear_attention")
_ATTENTION = ("attention", "*", "full_attention")


def mamba1(text: Fields) -> Iterator[LayerGroup]:
    """Mamba and nothing else."""
    yield shape.state(LayerKind.MAMBA1, text.where("num_hidden_layers"), count=shape.layers(text))


def mamba2(text: Fields) -> Iterator[LayerGroup]:
    """Mamba 2 and nothing else."""
    yield shape.state(LayerKind.MAMBA2, text.where("num_hidden_layers"), count=shape.layers(text))


def jamba(text: Fields) -> Iterator[LayerGroup]:
    """Every so many layers attention, else Mamba."""
    period = text.count("attn_layer_period", most=MOST_LAYERS)
    offset = text.count("attn_layer_offset", most=MOST_LAYERS, least=0)
    where = text.where("attn_layer_period")
    for index in range(shape.layers(text)):
        if index % period == offset:
            yield shape.attention(text, LayerKind.FULL, where)
        else:
            yield shape.state(LayerKind.MAMBA1, where)


def nemotron_h(text: Fields) -> Iterator[LayerGroup]:
    """A letter for each layer: M, an asterisk for attention, others without either."""
    names = ("hybrid_override_pattern", "layers_block_type", "layer_types")
    sliding = LayerKind.SLIDING if shape.window(text) else LayerKind.FULL
    for each in _pattern(text, *names):
        if each in _MAMBA:
            yield shape.state(LayerKind.MAMBA2, text.where(*names))
        elif each in _ATTENTION:
            yield shape.attention(text, sliding, text.where(*names))


def granite_hybrid(text: Fields) -> Iterator[LayerGroup]:
    """Attention or Mamba 2."""
    names = ("layer_types", "layers_block_type")
    for each in _pattern(text, *names)[: shape.layers(text)]:
        if each in _ATTENTION:
            yield shape.attention(text, LayerKind.FULL, text.where(*names))
        else:
            yield shape.state(LayerKind.MAMBA2, text.where(*names))


def falcon_h1(text: Fields) -> Iterator[LayerGroup]:
    """Attention and Mamba 2 side by side in each layer."""
    yield from mamba2(text)
    yield from attention.alike(text)


def zamba2(text: Fields) -> Iterator[LayerGroup]:
    """Mamba 2 in each layer, and before some of them a block of attention that is shared."""
    total = shape.layers(text)
    types = _pattern(text, "layers_block_type")[:total]
    yield from mamba2(text)
    query = shape.heads(text)
    double = 2 * text.count("hidden_size", most=MOST_SIZE) // query
    yield shape.attention(
        text,
        LayerKind.FULL,
        text.where("layers_block_type"),
        count=sum(each == "hybrid" for each in types),
        size=text.count("attention_head_dim", most=MOST_SIZE, default=double),
        key_value=query,
    )


def lfm2(text: Fields) -> Iterator[LayerGroup]:
    """Attention or a short convolution."""
    total = shape.layers(text)
    types = text.items("layer_types", total)
    if types is None:
        full = text.items("full_attn_idxs")
        among = range(total) if full is None else full
        types = ["full_attention" if index in among else "conv" for index in range(total)]
    where = text.where("layer_types", "full_attn_idxs")
    for each in types[:total]:
        if each == "full_attention":
            yield shape.attention(text, LayerKind.FULL, where)
        else:
            yield shape.state(LayerKind.SHORT_CONV, where)


def gated_delta(text: Fields) -> Iterator[LayerGroup]:
    """Attention or a gated delta net."""
    total = shape.layers(text)
    where = text.where("layer_types", "full_attention_interval")
    for each in _every(text, "full_attention_interval", 4, total):
        if each == "linear_attention":
            yield shape.state(LayerKind.GDN, where)
        else:
            yield shape.attention(text, LayerKind.FULL, where)


def qwen4_exp(text: Fields) -> Iterator[LayerGroup]:
    """A gated delta net, or attention over rows that an indexer chooses; in some a convolution."""
    total = shape.layers(text)
    where = text.where("layer_types", "full_attention_interval")
    own = "QWEN4_EXP_QSA_TRITON" if "indexer_n_heads" in text else None
    for each in _every(text, "full_attention_interval", 4, total):
        if each == "linear_attention":
            yield shape.state(LayerKind.GDN, where)
        else:
            kind = LayerKind.OTHER if own else LayerKind.FULL
            yield shape.attention(text, kind, where, backend=own)
    yield shape.state(
        LayerKind.SHORT_CONV,
        text.where("ple_layer_ids"),
        count=len(set(map(str, text.items("ple_layer_ids") or ()))),
        backend="PLE_SHORT_CONV_ATTN",
    )


def kimi_linear(text: Fields) -> Iterator[LayerGroup]:
    """Kimi's delta attention in the layers that are listed, counted from 1, else MLA."""
    total = shape.layers(text)
    section = text.section("linear_attn_config")
    listed = set() if section is None else set(map(str, section.items("kda_layers") or ()))
    delta = sum(str(index + 1) in listed for index in range(total))
    own = "KIMI_K3_KDA" if section and section.flag("use_full_rank_gate") else None
    if delta:
        yield shape.state(LayerKind.GDN, text.where("linear_attn_config"), count=delta, backend=own)
    if delta < total:
        yield latent.mla(text, count=total - delta)


def bailing_linear(text: Fields) -> Iterator[LayerGroup]:
    """The last layer of each group is MLA, the others linear attention."""
    total = shape.layers(text)
    size = text.count("layer_group_size", most=MOST_LAYERS, default=1)
    linear = sum((index + 1) % size != 0 for index in range(total))
    where = text.where("layer_group_size")
    yield shape.state(LayerKind.LINEAR, where, count=linear, backend="BAILING_LINEAR_ATTN")
    yield latent.mla(_bailing(text), count=total - linear)


def bailing_v3(text: Fields) -> Iterator[LayerGroup]:
    """The last of each group is MLA, as are those that fill no group; else delta attention."""
    total = shape.layers(text)
    size = text.count("layer_group_size", most=MOST_LAYERS)
    whole = total // size * size
    delta = sum((index + 1) % size != 0 for index in range(whole))
    yield shape.state(LayerKind.GDN, text.where("layer_group_size"), count=delta)
    yield latent.mla(_bailing(text), count=total - delta)


def _bailing(text: Fields) -> Fields:
    return text.with_defaults({"qk_rope_head_dim": 64, "kv_lora_rank": 512})


def _every(text: Fields, name: str, default: int, total: int) -> Sequence[Any]:
    """``layer_types``, or attention in every so many layers."""
    types = text.items("layer_types", total)
    if types is not None:
        return types[:total]
    step = text.count(name, most=MOST_LAYERS, default=default)
    return [
        "linear_attention" if (index + 1) % step else "full_attention" for index in range(total)
    ]


def _pattern(text: Fields, *names: str) -> Sequence[Any]:
    for name in names:
        value = text.get(name)
        if isinstance(value, str):
            return value[:MOST_LAYERS]
        if value is not None:
            return (text.items(name) or ())[:MOST_LAYERS]
    raise NotSaidError
