"""What a drafter's checkpoint holds: a trained estimate of its acceptance, an output head.

Rule: a name counts where vLLM's own loaders take it.
"""

from collections.abc import Collection

from vllm_av.preflight.model.fields import Fields

_CONFIDENCE = "confidence_head"
_OUTPUT = ("lm_head", "shared_head.head")
_ON_BY_DEFAULT = frozenset({"DSparkDraftModel", "DSparkV41DraftModel"})
"""DeepSeek's own build the head where their config does not switch it off; the others where it
switches it on (``enable_confidence_head``)."""


def confidence(
    method: str, architectures: Collection[str], text: Fields, tensors: Collection[str] | None
) -> bool | None:
    """Whether vLLM would load a confidence head; None where the tensors are not known."""
    if method != "dspark":
        return False
    default = not _ON_BY_DEFAULT.isdisjoint(architectures)
    if not text.flag("enable_confidence_head", default=default):
        return False
    if tensors is None:
        return None
    return any(_CONFIDENCE in name for name in tensors)


def output(text: Fields, tensors: Collection[str] | None) -> bool | None:
    """Whether it has an output head of its own; None where the tensors are not known."""
    if text.flag("has_own_lm_head"):
        return True
    if tensors is None:
        return None
    return any(part in name for name in tensors for part in _OUTPUT)
