"""What a model's code hands to its attention layers beside sizes: soft caps, ALiBi, and the keys
and values of other layers.

vLLM's selector is told nothing of it; some backends' constructors refuse it.

Rule: what is not listed hands nothing of the kind.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from vllm_av.preflight.facts import LayerGroup, LayerKind
from vllm_av.preflight.model.fields import MOST_LAYERS, Fields

_PLAIN = (LayerKind.FULL, LayerKind.SLIDING, LayerKind.CHUNKED)
CAPPED = ("Gemma2ForCausalLM", "Gemma4ForCausalLM", "VaultGemmaForCausalLM")
ALIBI = ("BloomForCausalLM", "Step1ForCausalLM")
ALIBI_SQRT = ("Step1ForCausalLM",)
SHARING = ("Gemma3nForCausalLM", "Gemma4ForCausalLM")


def handed(
    architecture: str | None, text: Fields, found: Iterable[LayerGroup]
) -> Iterator[LayerGroup]:
    """The same layers with what they are handed.

    Args:
        architecture: of the language model.
        text: its config, with what the config's class adds.

    Raises:
        CheckError: a key of the config that matters is wrong.
    """
    capped = architecture in CAPPED and text.get("attn_logit_softcapping") is not None
    alibi = architecture in ALIBI or (architecture == "FalconForCausalLM" and text.flag("alibi"))
    shared = architecture in SHARING and (
        text.count("num_kv_shared_layers", most=MOST_LAYERS, least=0, default=0) > 0
    )
    for each in found:
        yield (
            replace(
                each,
                soft_cap=capped,
                alibi=alibi,
                alibi_sqrt=architecture in ALIBI_SQRT,
                shared_kv=shared,
            )
            if each.kind in _PLAIN
            else each
        )
