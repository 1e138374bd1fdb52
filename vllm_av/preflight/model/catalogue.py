"""Which rule says the layers of an architecture.

The names are those of vLLM's registry (``model_executor/models/registry.py``); a contract test
holds each rule against vLLM's own model code and its source.

Rule: an architecture that is not listed has no rule, rather than a guess.
"""

from collections.abc import Callable, Iterable, Mapping

from vllm_av.preflight.facts import LayerGroup
from vllm_av.preflight.model import attention, hybrid, latent, own
from vllm_av.preflight.model.fields import Fields

Rule = Callable[[Fields], Iterable[LayerGroup]]

_ALIKE = """
    BailingMoeForCausalLM BailingMoeV2ForCausalLM BloomForCausalLM ChatGLMForConditionalGeneration
    ChatGLMModel CohereForCausalLM DbrxForCausalLM DeepseekForCausalLM Ernie4_5_MoeForCausalLM
    Ernie4_5ForCausalLM ExaoneForCausalLM FalconForCausalLM GemmaForCausalLM Glm4ForCausalLM
    Glm4MoeForCausalLM GPT2LMHeadModel GPTJForCausalLM HyperCLOVAXForCausalLM HYV3ForCausalLM
    InternLM2ForCausalLM MiniCPMForCausalLM MiniMaxM2ForCausalLM MixtralForCausalLM
    NemotronForCausalLM OlmoeForCausalLM OPTForCausalLM OrionForCausalLM Param2MoEForCausalLM
    Phi3ForCausalLM PhiMoEForCausalLM SarvamMoEForCausalLM SolarForCausalLM StableLmForCausalLM
    Step1ForCausalLM Step3TextForCausalLM TeleChat2ForCausalLM TeleFLMForCausalLM
"""
_BY_TYPE = """
    AfmoeForCausalLM ApertusForCausalLM Cohere2ForCausalLM Cohere2MoeForCausalLM
    Exaone4ForCausalLM Gemma2ForCausalLM Gemma3ForCausalLM Gemma3nForCausalLM InternLM3ForCausalLM
    IQuestCoderForCausalLM LLaMAForCausalLM LlamaForCausalLM Ministral3ForCausalLM
    MistralForCausalLM MuseGlimmerForCausalLM TeleChat3ForCausalLM
"""
_TRANSFORMERS = """
    ArceeForCausalLM CwmForCausalLM FlexOlmoForCausalLM GlmForCausalLM GPTBigCodeForCausalLM
    GPTNeoXForCausalLM HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM Jais2ForCausalLM
    MellumForCausalLM NanbeigeForCausalLM Olmo2ForCausalLM Olmo3ForCausalLM OlmoForCausalLM
    PhiForCausalLM SeedOssForCausalLM SmolLM3ForCausalLM Starcoder2ForCausalLM
    VaultGemmaForCausalLM
"""
# Which vLLM runs with transformers' own code, and windows as ``layer_types`` says.
_SWITCHED = """
    MiMoForCausalLM Qwen2ForCausalLM Qwen2MoeForCausalLM Qwen3ForCausalLM Qwen3MoeForCausalLM
"""
_DEEPSEEK = """
    AXK1ForCausalLM DeepseekV2ForCausalLM DeepseekV3ForCausalLM DeepseekV32ForCausalLM
    Glm4MoeLiteForCausalLM GlmMoeDsaForCausalLM MistralLarge3ForCausalLM
"""
_GATED_DELTA = """
    AliceAIForCausalLM OlmoHybridForCausalLM Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM
    Qwen3NextForCausalLM
"""

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_ALIKE.split(), attention.alike),
    **dict.fromkeys((_BY_TYPE + _TRANSFORMERS).split(), attention.by_type),
    **dict.fromkeys(_SWITCHED.split(), attention.switched),
    **dict.fromkeys(_DEEPSEEK.split(), latent.deepseek),
    **dict.fromkeys(_GATED_DELTA.split(), hybrid.gated_delta),
    "BailingMoeV2_5ForCausalLM": hybrid.bailing_linear,
    "BailingMoeV3ForCausalLM": hybrid.bailing_v3,
    "DeciLMForCausalLM": attention.decilm,
    "DeepseekV41ForCausalLM": latent.deepseek_v41,
    "DeepseekV4ForCausalLM": latent.deepseek_v4,
    "DomynEdgeForCausalLM": attention.domyn_edge,
    "ExaoneMoEForCausalLM": attention.exaone_moe,
    "ExaoneMoeForCausalLM": attention.exaone_moe,
    "FalconH1ForCausalLM": hybrid.falcon_h1,
    "FalconMambaForCausalLM": hybrid.mamba1,
    "Gemma4ForCausalLM": attention.gemma4,
    "GptOssForCausalLM": attention.gpt_oss,
    "GraniteForCausalLM": attention.granite,
    "GraniteMoeForCausalLM": attention.granite,
    "GraniteMoeHybridForCausalLM": hybrid.granite_hybrid,
    "GraniteMoeSWAForCausalLM": attention.granite,
    "GraniteMoeSharedForCausalLM": attention.granite,
    "GraniteSWAForCausalLM": attention.granite,
    "JambaForCausalLM": hybrid.jamba,
    "KimiLinearForCausalLM": hybrid.kimi_linear,
    "LagunaForCausalLM": attention.laguna,
    "Lfm2ForCausalLM": hybrid.lfm2,
    "Lfm2MoeForCausalLM": hybrid.lfm2,
    "Llama4ForCausalLM": attention.llama4,
    "LongcatFlashForCausalLM": latent.longcat,
    "Mamba2ForCausalLM": hybrid.mamba2,
    "MambaForCausalLM": hybrid.mamba1,
    "MiMoV2FlashForCausalLM": attention.mimo_v2,
    "MiMoV2ForCausalLM": attention.mimo_v2,
    "MiniCPM3ForCausalLM": attention.minicpm3,
    "MiniMaxM3SparseForCausalLM": own.minimax_m3,
    "NemotronHForCausalLM": hybrid.nemotron_h,
    "NemotronHPuzzleForCausalLM": hybrid.nemotron_h,
    "PanguEmbeddedForCausalLM": attention.interleaved,
    "PanguUltraMoEForCausalLM": latent.pangu_ultra,
    "Qwen4ExpForCausalLM": hybrid.qwen4_exp,
    "Rnj1ForCausalLM": attention.rnj1,
    "SarvamMLAForCausalLM": latent.latent,
    "Step3p5ForCausalLM": attention.step3p5,
    "Step5ForCausalLM": own.step5,
    "Zamba2ForCausalLM": hybrid.zamba2,
}
"""Architecture -> its rule, over the config of its language model."""

AROUND: Mapping[str, str | None] = {
    "AriaForConditionalGeneration": None,
    "BailingMoeV3VLForConditionalGeneration": "BailingMoeV3ForCausalLM",
    "Cohere2VisionForConditionalGeneration": None,
    "DeepseekOCRForCausalLM": None,
    "DeepseekV4ForConditionalGeneration": "DeepseekV4ForCausalLM",
    "DeepseekVLV2ForCausalLM": None,
    "DotsOCRForCausalLM": "Qwen2ForCausalLM",
    "Exaone4_5_ForConditionalGeneration": "Exaone4ForCausalLM",
    "Gemma3ForConditionalGeneration": "Gemma3ForCausalLM",
    "Gemma3nForConditionalGeneration": "Gemma3nForCausalLM",
    "Gemma4ForConditionalGeneration": "Gemma4ForCausalLM",
    "Gemma4UnifiedForConditionalGeneration": "Gemma4ForCausalLM",
    "Glm4vForConditionalGeneration": "Glm4ForCausalLM",
    "Glm4vMoeForConditionalGeneration": "Glm4MoeForCausalLM",
    "GlmOcrForConditionalGeneration": "Glm4ForCausalLM",
    "Idefics3ForConditionalGeneration": None,
    "InternS1ForConditionalGeneration": None,
    "InternS2PreviewForConditionalGeneration": None,
    "InternVLChatModel": None,
    "InternVLForConditionalGeneration": None,
    "KeyeForConditionalGeneration": "Qwen3ForCausalLM",
    "KimiK25ForConditionalGeneration": "DeepseekV3ForCausalLM",
    "KimiK3ForConditionalGeneration": "KimiLinearForCausalLM",
    "KimiVLForConditionalGeneration": "DeepseekV2ForCausalLM",
    "Lfm2VlForConditionalGeneration": None,
    "Llama4ForConditionalGeneration": "Llama4ForCausalLM",
    "Llama_Nemotron_Nano_VL": None,
    "LlavaForConditionalGeneration": None,
    "LlavaNextForConditionalGeneration": None,
    "LlavaNextVideoForConditionalGeneration": None,
    "LlavaOnevisionForConditionalGeneration": None,
    "MiMoV2OmniForCausalLM": "MiMoV2ForCausalLM",
    "MiniMaxM3SparseForConditionalGeneration": "MiniMaxM3SparseForCausalLM",
    "Mistral3ForConditionalGeneration": None,
    "MuseGlimmerForConditionalGeneration": "MuseGlimmerForCausalLM",
    "NemotronH_Nano_Omni_Reasoning_V3": "NemotronHForCausalLM",
    "NemotronH_Nano_VL_V2": "NemotronHForCausalLM",
    "NemotronH_Omni_Reasoning_V3": "NemotronHForCausalLM",
    "NemotronH_Super_Omni_Reasoning_V3": "NemotronHForCausalLM",
    "PaliGemmaForConditionalGeneration": None,
    "PixtralForConditionalGeneration": None,
    "Qwen2AudioForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen2VLForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen2_5_VLForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen3OmniMoeForConditionalGeneration": "Qwen3MoeForCausalLM",
    "Qwen3VLForConditionalGeneration": "Qwen3ForCausalLM",
    "Qwen3VLMoeForConditionalGeneration": "Qwen3MoeForCausalLM",
    "Qwen3_5ForConditionalGeneration": "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForConditionalGeneration": "Qwen3_5MoeForCausalLM",
    "Qwen4ExpForConditionalGeneration": "Qwen4ExpForCausalLM",
    "SmolVLMForConditionalGeneration": None,
    "Step3VLForConditionalGeneration": "Step3TextForCausalLM",
    "Step3p7ForConditionalGeneration": "Step3p5ForCausalLM",
    "Step5ForConditionalGeneration": "Step5ForCausalLM",
    "StepVLForConditionalGeneration": None,
}
"""A model around a language model -> that one's architecture; None where its config says it."""

_TYPES: Mapping[str, str] = {
    "aria_text": "LlamaForCausalLM",
    "cohere": "CohereForCausalLM",
    "cohere2": "Cohere2ForCausalLM",
    "deepseek": "DeepseekForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_vl_v2": "DeepseekV2ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "granite": "GraniteForCausalLM",
    "internlm2": "InternLM2ForCausalLM",
    "internlm3": "InternLM3ForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "lfm2_moe": "Lfm2MoeForCausalLM",
    "llama": "LlamaForCausalLM",
    "ministral3": "Ministral3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "opt": "OPTForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}


def inner(architecture: str, text: Fields) -> str | None:
    """The architecture of the language model; None where its config does not say it.

    Args:
        text: the config of its language model.
    """
    if architecture not in AROUND:
        return architecture
    found = AROUND[architecture]
    if found is None:
        named = [name for name in text.texts("architectures")[:1] if name in RULES]
        found = named[0] if named else _TYPES.get(str(text.get("model_type")))
    return found


def rule(architecture: str, text: Fields) -> Rule | None:
    """The rule of an architecture; None where there is none.

    Args:
        text: as above.
    """
    name = inner(architecture, text)
    return RULES.get(name) if name else None
