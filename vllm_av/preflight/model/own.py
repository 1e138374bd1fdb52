"""Models whose layers name a backend of their own, past vLLM's selector.

Rule: the name is that of the class where the model takes the same on every GPU, else that of the
family, as the tables of backends have it.
"""

from collections.abc import Iterator

from vllm_av.preflight.facts import LayerGroup, LayerKind
from vllm_av.preflight.model import attention, shape
from vllm_av.preflight.model.fields import MOST_HEADS, MOST_SIZE, Fields


def minimax_m3(text: Fields) -> Iterator[LayerGroup]:
    """Plain attention, and block-sparse attention with an indexer beside it."""
    total = shape.layers(text)
    section = text.section("sparse_attention_config")
    pattern = section.items("sparse_attention_freq") if section else None
    types = text.items("layer_types") or ()
    if pattern is not None:
        sparse = sum(each != 0 for each in pattern[:total])
    else:
        sparse = sum(each == "minimax_m3_sparse" for each in types[:total])
    where = text.where("sparse_attention_config", "layer_types")
    if sparse < total:
        yield shape.attention(text, LayerKind.FULL, where, count=total - sparse)
    if sparse:
        yield shape.attention(
            text, LayerKind.OTHER, where, count=sparse, backend="MINIMAX_M3_SPARSE"
        )
        holder = section or text
        yield LayerGroup(
            kind=LayerKind.INDEXER,
            count=sparse,
            head_size=holder.count(
                "sparse_index_dim", "index_head_dim", most=MOST_SIZE, default=128
            ),
            num_heads=holder.count(
                "sparse_num_index_heads", "index_n_heads", most=MOST_HEADS, default=4
            ),
            num_kv_heads=1,
            where=where,
            backend="MINIMAX_M3_SPARSE_INDEXER",
        )


def step5(text: Fields) -> Iterator[LayerGroup]:
    """Sparse attention in place of full; a window in the others; both of the model's own."""
    total = shape.layers(text)
    types = text.items("layer_types") or text.items("layer_types_with_mtp") or ()
    other = text.section("attention_other_setting")
    sparse = text.section("sparse_config")
    on = sparse is not None and sparse.flag("enabled", default=True)
    where = text.where("layer_types")
    found = 0
    for index in range(total):
        kind = types[index] if index < len(types) else attention.FULL
        slides = kind == attention.SLIDING and shape.window(text) is not None
        holder = other if other is not None and other.get("attention_type") == kind else None
        query = shape.heads(text)
        if slides:
            query = text.count("swa_num_attention_heads", most=MOST_HEADS, default=query)
        if holder is not None and "swa_num_attention_heads" not in text:
            query = holder.count("num_attention_heads", most=MOST_HEADS, default=query)
        key_value = shape.kv_heads(text)
        size = shape.head_size(text)
        if holder is not None:
            key_value = holder.count("num_attention_groups", most=MOST_HEADS, default=key_value)
            size = holder.count("head_dim", most=MOST_SIZE, default=size)
        sparse_here = on and kind == attention.FULL
        found += sparse_here
        yield shape.attention(
            text,
            LayerKind.OTHER,
            where,
            size=size,
            query=query,
            key_value=key_value,
            backend="STEP5_DSA" if sparse_here else "STEP5_FLASH_ATTN",
        )
    for backend in ("STEP5_CSA_SUMMARY", "STEP5_CSA_TAIL_RING"):
        yield shape.state(
            LayerKind.OTHER, text.where("sparse_config"), count=found, backend=backend
        )
