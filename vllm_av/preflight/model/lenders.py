"""The targets that lend no hidden states of their layers to a drafter.

EAGLE-3, DFlash and DSpark read the states of some of the target's layers, which the target's class
has to hand out (``SupportsEagle3`` of ``model_executor/models/interfaces.py``); vLLM asks it once
the weights are loaded.

Rule: an architecture is listed where the class that vLLM's registry names for it lacks the
interface on every platform; a contract test reads the list out of both sources.
"""

from vllm_av.preflight.backends.versions import is_old

_LACKING = """
    AXK1ForCausalLM AriaForConditionalGeneration AudioFlamingo3ForConditionalGeneration
    BagelForConditionalGeneration BailingMoeForCausalLM BailingMoeV2ForCausalLM
    BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration
    BeeForConditionalGeneration Blip2ForConditionalGeneration BloomForCausalLM
    ChatGLMForConditionalGeneration ChatGLMModel Cohere2ForCausalLM
    Cohere2VisionForConditionalGeneration CohereAsrForConditionalGeneration CohereForCausalLM
    Cosmos3EdgeForConditionalGeneration DbrxForCausalLM DeciLMForCausalLM
    DeepseekOCR2ForCausalLM DeepseekOCRForCausalLM DeepseekVLV2ForCausalLM
    DiffusionGemmaForBlockDiffusion Dots3NoteForCausalLM DotsOCRForCausalLM
    Eagle2_5_VLForConditionalGeneration Ernie4_5_MoeForCausalLM
    Ernie4_5_VLMoeForConditionalGeneration Exaone4ForCausalLM ExaoneForCausalLM
    ExaoneMoEForCausalLM ExaoneMoeForCausalLM FalconForCausalLM FalconH1ForCausalLM
    FalconMambaForCausalLM FireRedASR2ForConditionalGeneration FunASRForConditionalGeneration
    FunAudioChatForConditionalGeneration GLM4VForCausalLM GPT2LMHeadModel GPTJForCausalLM
    Gemma2ForCausalLM Gemma3ForCausalLM Gemma3ForConditionalGeneration Gemma3nForCausalLM
    Gemma3nForConditionalGeneration GemmaForCausalLM Glm4ForCausalLM Glm4MoeForCausalLM
    Glm4MoeLiteForCausalLM Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration
    GlmAsrForConditionalGeneration GlmOcrForConditionalGeneration
    Granite4VisionForConditionalGeneration GraniteMoeHybridForCausalLM
    GraniteSpeechForConditionalGeneration GraniteSpeechPlusForConditionalGeneration
    H2OVLChatModel HCXVisionV2ForCausalLM HYV3ForCausalLM HYV4ForCausalLM HfMoondream
    HrmTextForCausalLM HyperCLOVAXForCausalLM IQuestLoopCoderForCausalLM
    Idefics3ForConditionalGeneration InklingForCausalLM InklingForConditionalGeneration
    InternLM2ForCausalLM InternS1ForConditionalGeneration InternVLChatModel
    InternVLForConditionalGeneration IsaacForConditionalGeneration JambaForCausalLM
    KananaVForConditionalGeneration KeyeForConditionalGeneration
    KeyeVL1_5ForConditionalGeneration KimiVLForConditionalGeneration Lfm2ForCausalLM
    Lfm2MoeForCausalLM Lfm2VlForConditionalGeneration Llama_Nemotron_Nano_VL
    LlavaNextForConditionalGeneration LlavaNextVideoForConditionalGeneration
    LlavaOnevision2ForConditionalGeneration LlavaOnevisionForConditionalGeneration
    LongcatFlashForCausalLM LongcatFlashNgramForCausalLM Mamba2ForCausalLM MambaForCausalLM
    MiDashengLMModel MiniCPMO MiniCPMV MixtralForCausalLM Molmo2ForConditionalGeneration
    MolmoForCausalLM Moondream3ForCausalLM MoonshotKimiaForCausalLM MossAudioModel
    MossTranscribeDiarizeForConditionalGeneration NVLM_D NemotronForCausalLM
    NemotronParseForConditionalGeneration OPTForCausalLM OlmoHybridForCausalLM OlmoeForCausalLM
    OpenPanguVLForConditionalGeneration OpenVLAForActionPrediction OrionForCausalLM Ovis Ovis2_5
    Ovis2_6ForCausalLM Ovis2_6_MoeForCausalLM PaddleOCRVLForConditionalGeneration
    PaliGemmaForConditionalGeneration PanguEmbeddedForCausalLM PanguProMoEV2ForCausalLM
    PanguUltraMoEForCausalLM Param2MoEForCausalLM Phi3VForCausalLM Phi4ForCausalLMV
    Phi4MMForCausalLM PhiMoEForCausalLM QianfanOCRForConditionalGeneration
    Qwen2AudioForConditionalGeneration Qwen2MoeForCausalLM Qwen2VLForConditionalGeneration
    Qwen2_5OmniForConditionalGeneration Qwen2_5OmniModel Qwen4ExpForCausalLM
    RForConditionalGeneration Rnj1ForCausalLM SarvamMoEForCausalLM SkyworkR1VChatModel
    SmolVLMForConditionalGeneration SolarForCausalLM StableLmForCausalLM Step3TextForCausalLM
    Step3VLForConditionalGeneration Step3p5ForCausalLM Step3p7ForConditionalGeneration
    StepVLForConditionalGeneration UltravoxModel UnlimitedOCRForCausalLM
    VoxtralForConditionalGeneration VoxtralRealtimeGeneration WhisperForConditionalGeneration
    Zamba2ForCausalLM
"""
_LACKING_OLD = """
    GraniteMoeForCausalLM GraniteMoeSWAForCausalLM GraniteMoeSharedForCausalLM
"""
_LACKING_NEW = """
    AliceAIForCausalLM DomynEdgeForCausalLM DoryForCausalLM FlintForCausalLM Step5ForCausalLM
    Step5ForConditionalGeneration
"""


def lacks_interface(architecture: str, version: str) -> bool:
    """Whether a target of that architecture hands out no hidden states in that vLLM."""
    return architecture in lacking(version)


def lacking(version: str) -> frozenset[str]:
    """All of them."""
    more = _LACKING_OLD if is_old(version) else _LACKING_NEW
    return frozenset((_LACKING + more).split())
