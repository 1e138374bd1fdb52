"""What vLLM makes of a target's config where the target's own MTP modules are to draft.

The rows are those of ``SpeculativeConfig.hf_config_override`` (``config/speculative.py``): what the
config becomes, and under which key it says how many modules there are.

Rule: vLLM asks some by their architecture and the others by their type; the former come first.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from vllm_av.preflight.model.fields import MOST_LAYERS, Fields

_NEXT = "num_nextn_predict_layers"
_HIDDEN = "mtp_num_hidden_layers"


@dataclass(frozen=True)
class Row:
    """What a config becomes.

    Args:
        model_type, architecture: of the draft.
        key: where the number of modules stands.
        default: where it does not; None for no number at all.
        fixed: a number that holds whatever the config says.
        text: whether the config becomes its language model's part.
        written: whether vLLM also writes the number under ``num_nextn_predict_layers``.
    """

    model_type: str
    architecture: str
    key: str = _NEXT
    default: int | None = None
    fixed: int | None = None
    text: bool = False
    written: bool = False


@dataclass(frozen=True)
class Drafted:
    """What a drafter's config is, once vLLM has looked at it.

    Args:
        model_type: of the config.
        architectures: of the config.
        predicts: vLLM's ``n_predict``: K may be this, or less, or a multiple.
        modules: ``num_nextn_predict_layers``, which tells how many modules draft.
        fields: the config itself, of a model around a language model that one's part.
    """

    model_type: str
    architectures: tuple[str, ...]
    predicts: int | None
    modules: int
    fields: Fields

    @property
    def is_mtp(self) -> bool:
        """Whether vLLM takes the method ``mtp`` from this type."""
        return self.model_type in TYPES


_MIMO_V2 = Row("mimo_v2_mtp", "MiMoV2MTPModel", fixed=1, written=True)
_STEP3P5 = Row("step3p5_mtp", "Step3p5MTP", default=1, text=True)
_STEP5 = Row("step5_mtp", "Step5MTP", default=1, text=True)
_NEMOTRON = Row("nemotron_h_mtp", "NemotronHMTPModel", default=1)
_BAILING_V3 = Row("bailing_hybrid_v3_mtp", "BailingMoeV3MTPModel")
_MINIMAX_M3 = Row("minimax_m3_mtp", "MiniMaxM3MTP", key="num_mtp_modules", default=1, text=True)
_QWEN3_5 = Row("qwen3_5_mtp", "Qwen3_5MTP", key=_HIDDEN)
_QWEN3_5_MOE = Row("qwen3_5_mtp", "Qwen3_5MoeMTP", key=_HIDDEN)
_V3 = Row("deepseek_mtp", "DeepSeekMTPModel")
_V32 = Row("deepseek_mtp", "DeepseekV32MTPModel")

BY_ARCHITECTURE: Mapping[str, Row] = {
    "BailingMoeV2_5ForCausalLM": Row("bailing_hybrid_mtp", "BailingMoeV25MTPModel"),
    "BailingMoeV3ForCausalLM": _BAILING_V3,
    "BailingMoeV3VLForConditionalGeneration": Row(
        "bailing_hybrid_v3_mtp", "BailingMoeV3MTPModel", text=True
    ),
    "Glm4MoeForCausalLM": Row("glm4_moe_mtp", "Glm4MoeMTPModel"),
    "Glm4MoeLiteForCausalLM": Row("glm4_moe_lite_mtp", "Glm4MoeLiteMTPModel"),
    "GlmOcrForConditionalGeneration": Row("glm_ocr_mtp", "GlmOcrMTPModel"),
    "MiMoForCausalLM": Row("mimo_mtp", "MiMoMTPModel"),
    "MiMoV2FlashForCausalLM": _MIMO_V2,
    "MiMoV2ForCausalLM": _MIMO_V2,
    "MiMoV2OmniForCausalLM": Row("mimo_v2_mtp", "MiMoV2OmniMTPModel", fixed=1, written=True),
    "MiniMaxM3MTP": Row("minimax_m3_mtp", "MiniMaxM3MTP", key="num_mtp_modules", default=1),
    "MiniMaxM3SparseForConditionalGeneration": _MINIMAX_M3,
    "Step3p5ForCausalLM": _STEP3P5,
    "Step3p7ForConditionalGeneration": _STEP3P5,
    "Step5ForCausalLM": _STEP5,
    "Step5ForConditionalGeneration": _STEP5,
}

BY_TYPE: Mapping[str, Row] = {
    "bailing_hybrid": Row("bailing_hybrid_mtp", "BailingMoeV25MTPModel"),
    "deepseek_mtp": _V3,
    "deepseek_v3": _V3,
    "deepseek_v32": _V32,
    "deepseek_v4": Row("deepseek_mtp", "DeepSeekV4MTPModel"),
    "dots3_note": Row("dots3_note_mtp", "Dots3NoteMTPModel", default=1),
    "ernie4_5_moe": Row("ernie_mtp", "ErnieMTPModel"),
    "ernie_mtp": Row("ernie_mtp", "ErnieMTPModel"),
    "exaone4_5": Row("exaone4_5_mtp", "Exaone4_5_MTP"),
    "exaone_moe": Row("exaone_moe_mtp", "ExaoneMoeMTP"),
    "gemma4_assistant": Row("gemma4_mtp", "Gemma4MTPModel", fixed=1),
    "gemma4_unified_assistant": Row("gemma4_mtp", "Gemma4MTPModel", fixed=1),
    "glm5_next": Row("glm5_next_mtp", "Glm5NextMTPModel"),
    "glm_moe_dsa": _V32,
    "hy_v3": Row("hy_v3_mtp", "HYV3MTPModel"),
    "hy_v4": Row("hy_v4_mtp", "HYV4MTPModel"),
    "intern_s2_preview": _QWEN3_5,
    "interns2_mobius": Row("qwen3_5_mtp", "InternS2MobiusMTP", key=_HIDDEN),
    "kimi_k3": Row("kimi_k3_mtp", "KimiK3MTPModel"),
    "longcat_flash": Row("longcat_flash_mtp", "LongCatFlashMTPModel", default=1),
    "minimax_m3_mtp": Row("minimax_m3_mtp", "MiniMaxM3MTP", key="num_mtp_modules", default=1),
    "minimax_m3_vl": _MINIMAX_M3,
    "nemotron_h": _NEMOTRON,
    "nemotron_h_puzzle": _NEMOTRON,
    "pangu_ultra_moe": Row("pangu_ultra_moe_mtp", "OpenPanguMTPModel"),
    "qwen3_5": _QWEN3_5,
    "qwen3_5_moe": _QWEN3_5_MOE,
    "qwen3_5_moe_text": _QWEN3_5_MOE,
    "qwen3_5_text": _QWEN3_5,
    "qwen3_next": Row("qwen3_next_mtp", "Qwen3NextMTP"),
    "qwen4_exp": Row("qwen4_exp_mtp", "Qwen4ExpMTP", key=_HIDDEN),
    "qwen4_exp_text": Row("qwen4_exp_mtp", "Qwen4ExpMTP", key=_HIDDEN),
    "step3p5": _STEP3P5,
    "step3p7": _STEP3P5,
    "step5": _STEP5,
    "step5_vl": _STEP5,
}

TYPES = frozenset(
    {"mtp", "inkling_mtp"}
    | {row.model_type for row in (*BY_ARCHITECTURE.values(), *BY_TYPE.values())}
)
"""vLLM's ``MTPModelTypes``, as far as a config can become one of them."""


def drafted(whole: Fields, text: Fields) -> Drafted:
    """What a drafter's config becomes: itself where it has no MTP modules that vLLM knows.

    Args:
        whole: the config.
        text: its language model's part.

    Raises:
        CheckError: a number of modules is wrong.
    """
    architectures = whole.texts("architectures")
    kind = whole.text("model_type") or ""
    if kind in ("inkling_mm_model", "inkling_model"):
        return _inkling(whole, text)
    row = next(
        (BY_ARCHITECTURE[name] for name in architectures[:1] if name in BY_ARCHITECTURE), None
    )
    if row is None and architectures[:1] and "Omni_Reasoning" in architectures[0]:
        whole, kind = text, text.text("model_type") or ""
    row = row or BY_TYPE.get(kind)
    if row is None and "exaone4_5" in kind:
        row = BY_TYPE["exaone4_5"]
    if row is _NEMOTRON and not _modules(whole, _NEXT):
        row = None
    fields = text if row is not None and row.text else whole
    if row is None:
        modules = _modules(fields, _NEXT)
        predicts = _modules(fields, "n_predict")  # where vLLM has been here before
        return Drafted(kind, architectures, predicts, 1 if modules is None else modules, fields)
    predicts = row.fixed
    if predicts is None:
        predicts = _modules(fields, row.key)
        if (predicts is None and row.key != _NEXT) or kind in ("glm5_next", "kimi_k3"):
            predicts = _modules(text, row.key, _NEXT)
        predicts = row.default if predicts is None else predicts
    modules = predicts if row.written else _modules(fields, _NEXT)
    return Drafted(
        row.model_type,
        (row.architecture,),
        predicts,
        1 if modules is None else modules,
        text if row.text else fields,
    )


def _inkling(whole: Fields, text: Fields) -> Drafted:
    section = whole.section("mtp_config")
    count = _modules(section, _NEXT) if section is not None else None
    if not count:
        raise whole.wrong("mtp_config", "not there, or without modules", "a number of MTP modules")
    return Drafted("inkling_mtp", ("InklingMTPModel",), count, count, text)


def _modules(fields: Fields, *names: str) -> int | None:
    return fields.optional(*names, most=MOST_LAYERS, least=0)
