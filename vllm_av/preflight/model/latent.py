"""Models of latent attention (MLA), with and without the indexers of sparse attention.

Rule: the head size is what vLLM's selector is told: the latent's and the rotary part's together.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from vllm_av.preflight.facts import LayerGroup, LayerKind
from vllm_av.preflight.model import attention, shape
from vllm_av.preflight.model.fields import MOST_LAYERS, MOST_SIZE, MOST_TOKENS, Fields

_COMPRESSED = {4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}


def mla(text: Fields, *, count: int | None = None) -> LayerGroup:
    """``count`` layers of MLA; all of them where it is None."""
    size = text.count("kv_lora_rank", most=MOST_SIZE) + text.count(
        "qk_rope_head_dim", most=MOST_SIZE, least=0, default=0
    )
    return shape.attention(
        text,
        LayerKind.MLA_SPARSE if "index_topk" in text else LayerKind.MLA,
        text.where("index_topk" if "index_topk" in text else "kv_lora_rank"),
        count=shape.layers(text) if count is None else count,
        size=size,
        key_value=1,
    )


def deepseek(text: Fields) -> Iterator[LayerGroup]:
    """MLA, sparse from V3.2 on; plain attention in the small models without a latent."""
    rotary = text.count("qk_rope_head_dim", most=MOST_SIZE, least=0, default=0)
    other = text.count("qk_nope_head_dim", most=MOST_SIZE, least=0, default=0)
    if rotary == other == 0:
        yield from attention.alike(text)
    elif "kv_lora_rank" not in text:
        yield shape.attention(
            text,
            LayerKind.FULL,
            text.where("qk_nope_head_dim"),
            count=shape.layers(text),
            size=rotary + other,
            key_value=shape.heads(text),
        )
    else:
        yield mla(text)
        if "index_topk" in text:
            yield indexer(text, _indexing(text, shape.layers(text)))


def latent(text: Fields) -> Iterator[LayerGroup]:
    """MLA and nothing else."""
    yield mla(text)


def longcat(text: Fields) -> Iterator[LayerGroup]:
    """Two layers of attention in each of the model's."""
    yield mla(text, count=2 * text.count("num_layers", "num_hidden_layers", most=MOST_LAYERS))


def pangu_ultra(text: Fields) -> Iterator[LayerGroup]:
    """MLA where its four sizes are there, else plain."""
    names = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank")
    yield from latent(text) if all(name in text for name in names) else attention.alike(text)


def indexer(text: Fields, count: int, backend: str | None = None) -> LayerGroup:
    """``count`` indexers, of DeepSeek V3.2's kind where no other is named."""
    return LayerGroup(
        kind=LayerKind.INDEXER,
        count=count,
        head_size=text.count("index_head_dim", most=MOST_SIZE),
        num_heads=text.count("index_n_heads", most=MOST_SIZE),
        num_kv_heads=1,
        where=text.where("index_topk"),
        backend=backend or "DEEPSEEK_V32_INDEXER",
    )


def _indexing(text: Fields, total: int) -> int:
    """How many layers have an indexer: others take the selection of an earlier one."""
    pattern = text.get("index_topk_pattern")
    if isinstance(pattern, str | list | tuple):
        return sum(not (index < len(pattern) and pattern[index] == "S") for index in range(total))
    step = text.count("index_topk_freq", most=MOST_LAYERS, default=1)
    offset = text.count("index_skip_topk_offset", most=MOST_LAYERS, least=0, default=2)
    return sum(max(index - offset + 1, 0) % step == 0 for index in range(total))


def deepseek_v4(text: Fields) -> Iterator[LayerGroup]:
    """A window in every layer, and in most of them a compressed cache beside it."""
    total = shape.layers(text)
    ratios = _ratios(text, total)
    where = text.where("compress_ratios", "compress_rates", "layer_types")
    yield _own(text, total, text.where("sliding_window"), "DEEPSEEK_SPARSE_SWA")
    compressed = sum(ratio > 1 for ratio in ratios)
    yield _own(text, compressed, where, "DEEPSEEK_V4_SPARSE_MLA")
    # A compressor beside the cache, and where rows are then chosen, another beside the indexer.
    sparse = sum(ratio == 4 for ratio in ratios)
    yield _own(text, compressed + sparse, where, "CompressorBackend")
    if sparse:
        yield indexer(text, sparse, "DEEPSEEK_V4_INDEXER")


def _ratios(text: Fields, total: int) -> Sequence[int]:
    """How many tokens a row of the compressed cache stands for, for each layer."""
    ratios = text.items("compress_ratios", total)
    if ratios is not None:
        return [text.number(each, MOST_TOKENS, least=0) for each in ratios[:total]]
    rates: dict[Any, Any] = {name: ratio for ratio, name in _COMPRESSED.items()}
    if (section := text.section("compress_rates")) is not None:
        rates |= section.values
    types = text.items("layer_types", total)
    if types is None:  # as the config's class writes them
        heavy, light = _COMPRESSED[128], _COMPRESSED[4]
        types = [heavy] * min(total, 2) + [light if i % 2 else heavy for i in range(total - 2)]
    return [text.number(rates.get(str(each), 0), MOST_TOKENS, least=0) for each in types[:total]]


def deepseek_v41(text: Fields) -> Iterator[LayerGroup]:
    """A window in every layer; caches and indexers in those that others read from."""
    total = shape.layers(text)
    ratios = text.items("compress_ratios", total) or [0] * total
    where = text.where("kv_source_layer_ids")
    yield _own(text, total, text.where("sliding_window"), "DEEPSEEK_V41_SPARSE_SWA")
    sources = {each for each in text.items("kv_source_layer_ids") or () if _is_index(each, total)}
    yield _own(text, len(sources), where, "DEEPSEEK_V41_SPARSE_MLA")
    rings = sum(text.number(ratios[each], MOST_TOKENS, least=0) > 1 for each in sources)
    yield _own(text, rings, where, "CompressorBackend")
    indexing = sources.intersection(
        each for each in text.items("index_source_layer_ids") or () if _is_index(each, total)
    )
    if indexing:
        yield indexer(text, len(indexing), "DEEPSEEK_V41_INDEXER")


def _is_index(value: object, total: int) -> bool:
    return type(value) is int and 0 <= value < total


def _own(text: Fields, count: int, where: str, backend: str) -> LayerGroup:
    size = text.count("head_dim", most=MOST_SIZE)
    return shape.attention(
        text, LayerKind.OTHER, where, count=count, size=size, key_value=1, backend=backend
    )
