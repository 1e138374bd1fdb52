"""The layers of a drafter that drafts token by token.

Such a drafter starts from the target's trimmed batch, so that its layers too have to take query
lengths that differ between host and device; the blocks of DFlash and DSpark are whole.

Rule: a drafter that is not listed gives no layers.
"""

from collections.abc import Collection, Iterable

from vllm_av.preflight.facts import LayerGroup, LayerKind
from vllm_av.preflight.model import attention, catalogue, latent, shape
from vllm_av.preflight.model.fields import MOST_LAYERS, Fields, NotSaidError
from vllm_av.preflight.model.handed import handed

_FULL = """
    ErnieMTPModel Glm4MoeMTPModel GlmOcrMTPModel HYV3MTPModel MiMoMTPModel NemotronHMTPModel
    Qwen3_5MTP Qwen3_5MoeMTP Qwen3NextMTP
"""
_MLA = """
    BailingMoeV25MTPModel BailingMoeV3MTPModel DeepSeekMTPModel DeepseekV32MTPModel
    Glm4MoeLiteMTPModel KimiK3MTPModel LongCatFlashMTPModel OpenPanguMTPModel
"""
_EAGLE = """
    Eagle3LlamaForCausalLM Eagle3MiniMaxM2ForCausalLM Eagle3Qwen2_5vlForCausalLM
    Eagle3Qwen3ForCausalLM Eagle3Qwen3vlForCausalLM EagleCohereForCausalLM EagleLlamaForCausalLM
    EagleMiniCPMForCausalLM EagleMistralForCausalLM LlamaForCausalLMEagle3
"""
_EAGLE_MLA = ("Eagle3DeepseekV2ForCausalLM", "Eagle3DeepseekV3ForCausalLM")


def groups(
    method: str, architectures: Collection[str], text: Fields, modules: int
) -> tuple[LayerGroup, ...]:
    """Its layers; empty where they are not known, or see whole blocks.

    Args:
        method: as vLLM settles it.
        architectures: the same.
        text: its config, with what the config's class adds.
        modules: of MTP, how many there are.

    Raises:
        CheckError: a number in the config is wrong.
    """
    name = next(iter(architectures), "")
    try:
        return shape.gathered(_layers(method, name, text, modules))
    except NotSaidError:
        return ()


def _layers(method: str, name: str, text: Fields, modules: int) -> Iterable[LayerGroup]:
    if method == "draft_model":
        rule = catalogue.rule(name, text)
        return () if rule is None else handed(catalogue.inner(name, text), text, rule(text))
    if method == "mtp":
        return _modules(name, text, min(modules, MOST_LAYERS))
    if name in _EAGLE.split():
        return attention.by_type(text)
    if name in _EAGLE_MLA:
        return latent.latent(text)
    return ()


def _modules(name: str, text: Fields, count: int) -> Iterable[LayerGroup]:
    """One layer of attention in each module."""
    if name in _FULL.split():
        where = text.where("num_attention_heads")
        yield shape.attention(text, LayerKind.FULL, where, count=count)
    elif name in _MLA.split():
        yield latent.mla(text, count=count)
        if "index_topk" in text:
            yield latent.indexer(text, count)
