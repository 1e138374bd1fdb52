"""Which layers a model has: what vLLM's own model code would build of its config.

Rule: an architecture that is not known gives no layers at all.
"""

from dataclasses import replace

from vllm_av.preflight.facts import LayerGroup, LayerKind
from vllm_av.preflight.model import catalogue, shape
from vllm_av.preflight.model.fields import Fields, NotSaidError
from vllm_av.preflight.model.handed import handed

_PREFIX_TYPES = frozenset({"bagel", "gemma3", "molmo2", "moondream3", "paligemma"})
_VISION_TYPES = frozenset({"gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text"})


def groups(architecture: str, whole: Fields, text: Fields) -> tuple[LayerGroup, ...]:
    """The layers of a model; empty where this package does not know the architecture.

    Args:
        architecture: the first of ``architectures``.
        whole: its config.
        text: the language model's part, with what the config's class adds.

    Raises:
        CheckError: a key of the config that matters is wrong or missing.
    """
    rule = catalogue.rule(architecture, text)
    if rule is None:
        return ()
    try:
        name = catalogue.inner(architecture, text)
        found = shape.gathered(handed(name, text, rule(text)))
    except NotSaidError:
        return ()
    if not mm_prefix(whole, text):
        return found
    # vLLM asks it of every layer that goes through its selector with keys and values of its own.
    plain = {LayerKind.FULL, LayerKind.SLIDING}
    return tuple(replace(each, mm_prefix=each.kind in plain) for each in found)


def mm_prefix(whole: Fields, text: Fields) -> bool:
    """Whether image tokens attend to each other (vLLM's ``is_mm_prefix_lm``)."""
    kind = whole.text("model_type")
    if kind in _VISION_TYPES:
        return bool(text.get("use_bidirectional_attention") == "vision")
    if "is_mm_prefix_lm" in whole:
        return whole.flag("is_mm_prefix_lm")
    return kind in _PREFIX_TYPES
