"""Models of plain attention: which of their layers have a window, a chunk or sinks.

vLLM's ``Attention`` takes the window that the model's code hands to a layer, and where that hands
none, the window of the whole model, which is in force where no layer is of another type
(``engine/arg_utils.py``, ``CacheConfig.sliding_window``).

Rule: one function for each way that model code tells its layers apart.
"""

from collections.abc import Iterator

from vllm_av.preflight.facts import LayerGroup, LayerKind
from vllm_av.preflight.model import shape
from vllm_av.preflight.model.fields import MOST_HEADS, MOST_SIZE, MOST_TOKENS, Fields

SLIDING = "sliding_attention"
FULL = "full_attention"


def alike(text: Fields) -> Iterator[LayerGroup]:
    """The model's code tells no layers apart."""
    total = shape.layers(text)
    types = text.items("layer_types")
    if shape.window(text) and (types is None or all(each == SLIDING for each in types)):
        kind, where = LayerKind.SLIDING, text.where("sliding_window")
    else:
        kind, where = LayerKind.FULL, text.where("num_hidden_layers", "n_layer")
    yield shape.attention(text, kind, where, count=total)


def by_type(text: Fields, *, sliding: str = SLIDING, sink: bool = False) -> Iterator[LayerGroup]:
    """``layer_types`` says which have a window.

    Args:
        sliding: the type that has one.
        sink: whether all have sinks.
    """
    total = shape.layers(text)
    types = text.items("layer_types", total)
    if types is None:
        yield from alike(text)
        return
    where = text.where("layer_types")
    window = shape.window(text) is not None
    every = all(each == SLIDING for each in types)
    for each in types[:total]:
        kind = LayerKind.SLIDING if window and (each == sliding or every) else LayerKind.FULL
        yield shape.attention(text, kind, where, sink=sink)


def switched(text: Fields) -> Iterator[LayerGroup]:
    """Qwen 2 and 3: the window counts where ``use_sliding_window`` is on."""
    if not text.flag("use_sliding_window"):
        text = text.replaced(sliding_window=None)
    if "layer_types" not in text and shape.window(text):
        # As the config's class writes them: some of the first layers have none, and then the
        # model's code knows no window at all.
        total = shape.layers(text)
        first = text.count("max_window_layers", most=1 << 20, least=0, default=total)
        text = text.replaced(layer_types=[FULL] * min(first, total) + [SLIDING] * (total - first))
    yield from alike(text)


def gpt_oss(text: Fields) -> Iterator[LayerGroup]:
    """Every other layer, from the first, has a window; all have sinks."""
    total = shape.layers(text)
    where = text.where("sliding_window")
    for index in range(total):
        slides = index % 2 == 0 and shape.window(text) is not None
        kind = LayerKind.SLIDING if slides else LayerKind.FULL
        yield shape.attention(text, kind, where, sink=True)


def granite(text: Fields) -> Iterator[LayerGroup]:
    """Sinks where there are types of layers, unless ``attention_sinks`` says otherwise."""
    sink = text.flag("attention_sinks", default="layer_types" in text)
    yield from by_type(text, sink=sink)


def llama4(text: Fields) -> Iterator[LayerGroup]:
    """Layers with rotary embeddings see a chunk, the others everything."""
    total = shape.layers(text)
    rotary = text.items("no_rope_layers")
    if not rotary:
        step = text.count("no_rope_layer_interval", most=MOST_SIZE, default=4)
        rotary = [int((index + 1) % step != 0) for index in range(total)]
    where = text.where("attention_chunk_size")
    for each in rotary[:total]:
        chunked = each != 0 and text.flag("attention_chunk_size")
        yield shape.attention(text, LayerKind.CHUNKED if chunked else LayerKind.FULL, where)


def gemma4(text: Fields) -> Iterator[LayerGroup]:
    """Full layers have heads of a size of their own, and perhaps fewer for keys and values."""
    total = shape.layers(text)
    types = text.items("layer_types", total) or ()
    size = text.count("global_head_dim", most=MOST_SIZE, default=512)
    key_value = shape.kv_heads(text)
    if text.flag("attention_k_eq_v", default=True):
        key_value = text.count("num_global_key_value_heads", most=MOST_HEADS, default=key_value)
    for index, each in enumerate(types[:total]):
        if each == SLIDING and index + 1 < len(types) and shape.window(text):
            yield shape.attention(text, LayerKind.SLIDING, text.where("layer_types"))
        else:  # the last one always is
            yield shape.attention(
                text,
                LayerKind.FULL,
                text.where("global_head_dim"),
                size=size,
                key_value=key_value,
            )


def mimo_v2(text: Fields) -> Iterator[LayerGroup]:
    """Heads, sizes and sinks differ; keys and values of two sizes take a backend of their own."""
    total = shape.layers(text)
    pattern = text.items("hybrid_layer_pattern", total)
    if pattern is None:
        types = text.items("layer_types", total) or [FULL] * total
        pattern = [int(each == SLIDING) for each in types]
    for each in pattern[:total]:
        prefix = "swa_" if each == 1 else ""
        size = text.count(f"{prefix}head_dim", most=MOST_SIZE, default=shape.head_size(text))
        value = text.count(f"{prefix}v_head_dim", most=MOST_SIZE, default=size)
        yield shape.attention(
            text,
            LayerKind.SLIDING if each == 1 else LayerKind.FULL,
            text.where("hybrid_layer_pattern", "layer_types"),
            size=size,
            query=text.count(
                f"{prefix}num_attention_heads", most=MOST_HEADS, default=shape.heads(text)
            ),
            key_value=text.count(
                f"{prefix}num_key_value_heads", most=MOST_HEADS, default=shape.kv_heads(text)
            ),
            sink=each == 1 and text.flag("add_swa_attention_sink_bias"),
            backend="FLASH_ATTN_DIFFKV" if value != size else None,
        )


def laguna(text: Fields) -> Iterator[LayerGroup]:
    """Heads differ from layer to layer; sinks are switched on for those with a window."""
    total = shape.layers(text)
    types = text.items("layer_types", total) or [FULL] * total
    each_heads = text.items("num_attention_heads_per_layer", total)
    sink = text.flag("swa_attention_sink_enabled")
    for index, each in enumerate(types[:total]):
        slides = each == SLIDING and shape.window(text) is not None
        yield shape.attention(
            text,
            LayerKind.SLIDING if slides else LayerKind.FULL,
            text.where("layer_types"),
            query=None if each_heads is None else text.number(each_heads[index], MOST_HEADS),
            sink=sink and each == SLIDING,
        )


def step3p5(text: Fields) -> Iterator[LayerGroup]:
    """Layers with a window have a number of heads of their own."""
    total = shape.layers(text)
    types = text.items("layer_types", total) or [FULL] * total
    sliding_heads = shape.heads(text)
    other = text.section("attention_other_setting")
    if "num_sliding_attention_heads" in text:
        sliding_heads = text.count("num_sliding_attention_heads", most=MOST_HEADS)
    elif other and other.get("attention_type") in (None, SLIDING):
        sliding_heads = other.count("num_attention_heads", most=MOST_HEADS, default=sliding_heads)
    for each in types[:total]:
        slides = each == SLIDING
        yield shape.attention(
            text,
            LayerKind.SLIDING if slides and shape.window(text) else LayerKind.FULL,
            text.where("layer_types"),
            query=sliding_heads if slides else None,
        )


def exaone_moe(text: Fields) -> Iterator[LayerGroup]:
    """Layers may each have a window of their own."""
    windows = text.items("sliding_windows")
    if windows is not None and any(windows):
        text = text.replaced(sliding_window=1)
    yield from by_type(text)


def minicpm3(text: Fields) -> Iterator[LayerGroup]:
    """Latent projections, but plain attention over heads of the two parts' size."""
    size = text.count("qk_nope_head_dim", most=MOST_SIZE) + text.count(
        "qk_rope_head_dim", most=MOST_SIZE
    )
    yield shape.attention(
        text,
        LayerKind.FULL,
        text.where("qk_nope_head_dim"),
        count=shape.layers(text),
        size=size,
        key_value=shape.heads(text),
    )


def decilm(text: Fields) -> Iterator[LayerGroup]:
    """Layers without attention, and others that share keys and values in groups of a size."""
    for block in text.items("block_configs") or ():
        layer = text.inner(block, "block_configs").section("attention")
        if layer is None or layer.flag("no_op"):
            continue
        shared = layer.count("n_heads_in_group", most=MOST_HEADS, default=1)
        yield shape.attention(
            text,
            LayerKind.FULL,
            text.where("block_configs"),
            key_value=max(1, shape.heads(text) // shared),
        )


def domyn_edge(text: Fields) -> Iterator[LayerGroup]:
    """A pair for each layer, of which the first is the window where it is above 0."""
    total = shape.layers(text)
    for each in (text.items("window_sizes", total) or [[0]] * total)[:total]:
        slides = (
            isinstance(each, list | tuple)
            and bool(each)
            and text.number(each[0], MOST_TOKENS, least=-1) > 0
        )
        kind = LayerKind.SLIDING if slides else LayerKind.FULL
        yield shape.attention(text, kind, text.where("window_sizes"))


def interleaved(text: Fields) -> Iterator[LayerGroup]:
    """A window for all, or a list of windows that repeats."""
    value = text.get("interleaved_sliding_window")
    windows = list(value) if isinstance(value, list | tuple) else [value]
    where = text.where("interleaved_sliding_window", "num_hidden_layers")
    if not any(windows):
        yield from alike(text)
        return
    for index in range(shape.layers(text)):
        kind = LayerKind.SLIDING if windows[index % len(windows)] else LayerKind.FULL
        yield shape.attention(text, kind, where)


def rnj1(text: Fields) -> Iterator[LayerGroup]:
    """Layers of chunked attention, which vLLM runs with a window and a look back."""
    yield from by_type(text, sliding="chunked_attention")
