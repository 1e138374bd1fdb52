"""Which drafters vLLM offers, and what each gives adaptive verification to work with.

The rows stand in the order in which ``vllm/v1/worker/gpu/spec_decode/__init__.py`` asks, so that
the first one that fits is the speculator that vLLM's V2 runner builds. A contract test,
``tests/contract/test_drafters.py``, holds each row against the source of the supported vLLMs.

What is trimmed was drafted before. A drafter that makes its block in one pass loses next to nothing
by that; one that drafts token by token has paid a pass for each draft that is then left out.

Rule: data and pure functions; nothing of vllm, torch or the rest of this package is imported.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

SUPPORTED = ("0.32.0", "0.33.0")
"""The vLLM versions that there is a patch series for."""


class DraftLogits(StrEnum):
    """The logits that a speculator shows to a scorer."""

    VOCABULARY = "vocabulary"
    """Over the draft model's vocabulary."""
    CANDIDATES = "candidates"
    """Over the few candidates of each position, given the one drawn before."""
    NONE = "none"


class Head(StrEnum):
    """Whether the draft checkpoint holds a trained estimate of its acceptance."""

    HAS = "has"
    LACKS = "lacks"
    """Others of the same method have one."""
    NEVER = "never"


class Passes(StrEnum):
    """How often a model runs for K drafts."""

    ONE = "one"
    EACH = "K"
    NONE = "none"


@dataclass(frozen=True)
class Start:
    """Where the online estimator may start: p = sigmoid(slope * log-odds + intercept).

    Args:
        source: who fitted these two numbers, to what.
    """

    slope: float
    intercept: float
    source: str


UPSTREAM = Start(0.5, -0.2, "vLLM's constants; no fit for this type is published")
_DSPARK = Start(0.5, -0.14, "DeepSeek-V4-Flash with DSpark: .501, -.137 (vLLM 52228)")
_MTP_START = Start(0.59, -0.61, "Inkling with MTP: .586, -.614 (vLLM 52228)")
_NOT_OFFERED = "the V2 runner does not offer it"


@dataclass(frozen=True)
class DrafterType:
    """One row; a drafter is of it where everything from ``methods`` to ``parallel`` holds.

    Args:
        name: as in ``configs/<name>.json``.
        title: for people.
        methods: one of them is ``SpeculativeConfig.method``, once vLLM has settled that.
        speculator: the class in ``vllm/v1/worker/gpu/spec_decode``; None where there is none.
        passes: what drafting costs, in a word.
        drafting: the same in a few more.
        architectures: one of them is the draft checkpoint's; empty where any will do.
        model_type: of the draft checkpoint's config.
        many_modules: the checkpoint has several MTP modules, and K reaches the second.
        parallel: ``parallel_drafting`` is set for a method that drafts one by one.
        head: has it a trained estimate.
        vllm: the supported versions that offer it.
        logits: what a scorer is shown.
        local_argmax: whether ``use_local_argmax_reduction`` spares these logits. Where it does
            not, vLLM takes them for spared all the same.
        refusal: why there is no adaptive verification: nothing estimates acceptance, or the V2
            runner has no speculator.
        kept: whether vLLM never takes another method where a user wrote this one.
        start: for the online estimator.
    """

    name: str
    title: str
    methods: tuple[str, ...]
    speculator: str | None
    passes: Passes
    drafting: str
    architectures: tuple[str, ...] = ()
    model_type: str | None = None
    many_modules: bool = False
    parallel: bool = False
    head: Head = Head.NEVER
    vllm: tuple[str, ...] = SUPPORTED
    logits: DraftLogits = DraftLogits.VOCABULARY
    local_argmax: bool = False
    refusal: str | None = None
    kept: bool = False
    start: Start | None = None

    @property
    def estimates(self) -> bool:
        """Whether the speculator asks a scorer, so that adaptive verification is possible."""
        return self.refusal is None


TYPES: tuple[DrafterType, ...] = (
    DrafterType(
        "extract-hidden-states",
        "hidden states",
        ("extract_hidden_states",),
        "ExtractHiddenStatesSpeculator",
        Passes.NONE,
        "no drafting",
        logits=DraftLogits.NONE,
        refusal="it drafts nothing: it exports hidden states",
        kept=True,
    ),
    # One pass for the block. XPress, LiLiCorr and DFlash2 are DFlash by their method.
    DrafterType(
        "xpress",
        "XPress",
        ("dflash",),
        "XPressSpeculator",
        Passes.ONE,
        "one pass, then a few Jacobi passes of a small head",
        architectures=("Qwen3XPressModel", "DFlashQwen3XPressModel"),
        vllm=("0.33.0",),
        logits=DraftLogits.NONE,
        refusal="it refines greedily and shows no distribution",
    ),
    DrafterType(
        "lilicorr",
        "LiLiCorr",
        ("dflash",),
        "LiLiCorrSpeculator",
        Passes.ONE,
        "one pass, then a walk over candidates",
        architectures=("LiLiCorrDraftModel",),
        logits=DraftLogits.CANDIDATES,
        start=UPSTREAM,
    ),
    DrafterType(
        "dflash2",
        "DFlash2",
        ("dflash",),
        "DFlash2Speculator",
        Passes.ONE,
        "one pass, then a walk over candidates",
        architectures=("DFlash2DraftModel", "DFlash2BeamDraftModel"),
        logits=DraftLogits.CANDIDATES,
        start=Start(0.44, -0.16, "Muse-Glimmer with DFlash2: .443, -.158 (vLLM 52228)"),
    ),
    DrafterType(
        "dflash",
        "DFlash",
        ("dflash",),
        "DFlashSpeculator",
        Passes.ONE,
        "one pass",
        local_argmax=True,
        start=Start(
            0.67,
            -0.58,
            "midway between MiMo: .515, -.923, and Kimi-K2.5: .826, -.234 (vLLM 52228)",
        ),
    ),
    DrafterType(
        "dspark",
        "DSpark with its head",
        ("dspark",),
        "DSparkSpeculator",
        Passes.ONE,
        "one pass, then K steps of a small Markov head",
        head=Head.HAS,
        start=_DSPARK,
    ),
    DrafterType(
        "dspark-headless",
        "DSpark without a head",
        ("dspark",),
        "DSparkSpeculator",
        Passes.ONE,
        "one pass, then K steps of a small Markov head",
        head=Head.LACKS,
        start=_DSPARK,
    ),
    # A pass for each draft.
    DrafterType(
        "parallel",
        "P-EAGLE, PARD",
        ("eagle", "eagle3", "mtp", "draft_model"),
        None,
        Passes.ONE,
        "one pass",
        parallel=True,
        logits=DraftLogits.NONE,
        refusal=_NOT_OFFERED,
    ),
    DrafterType(
        "gemma4-mtp",
        "Gemma-4 MTP",
        ("mtp",),
        "Gemma4Speculator",
        Passes.EACH,
        "K passes of all its layers",
        model_type="gemma4_mtp",
        local_argmax=True,
        start=UPSTREAM,
    ),
    DrafterType(
        "multi-module-mtp",
        "MTP of several modules",
        ("mtp",),
        "MultiModuleMTPSpeculator",
        Passes.EACH,
        "K passes, each of a module of its own",
        many_modules=True,
        local_argmax=True,
        start=_MTP_START,
    ),
    DrafterType(
        "mtp",
        "MTP",
        ("mtp",),
        "MTPSpeculator",
        Passes.EACH,
        "K passes of one layer",
        local_argmax=True,
        start=_MTP_START,
    ),
    DrafterType(
        "eagle",
        "EAGLE",
        ("eagle",),
        "EagleSpeculator",
        Passes.EACH,
        "K passes of one layer, each over the whole vocabulary",
        local_argmax=True,
        start=UPSTREAM,
    ),
    DrafterType(
        "eagle3",
        "EAGLE-3",
        ("eagle3",),
        "EagleSpeculator",
        Passes.EACH,
        "K passes of one layer; its vocabulary may be reduced",
        local_argmax=True,
        start=UPSTREAM,
    ),
    DrafterType(
        "draft-model",
        "draft model",
        ("draft_model",),
        "StandaloneARSpeculator",
        Passes.EACH,
        "K passes of a whole model",
        local_argmax=True,
        start=UPSTREAM,
    ),
    # No draft model.
    DrafterType(
        "ngram",
        "n-gram",
        ("ngram", "ngram_gpu"),
        "NgramGPUSpeculator",
        Passes.NONE,
        "no model",
        logits=DraftLogits.NONE,
        refusal="it copies its drafts from the text so far",
        kept=True,
    ),
    DrafterType(
        "suffix",
        "suffix decoding",
        ("suffix",),
        None,
        Passes.NONE,
        "no model",
        logits=DraftLogits.NONE,
        refusal=_NOT_OFFERED,
        kept=True,
    ),
    DrafterType(
        "custom-class",
        "a class of one's own",
        ("custom_class",),
        None,
        Passes.NONE,
        "its own affair",
        logits=DraftLogits.NONE,
        refusal=_NOT_OFFERED,
        kept=True,
    ),
    DrafterType(
        "medusa",
        "Medusa",
        ("medusa",),
        None,
        Passes.ONE,
        "one pass of small heads",
        vllm=("0.32.0",),
        logits=DraftLogits.NONE,
        refusal=_NOT_OFFERED,
    ),
    DrafterType(
        "mlp-speculator",
        "MLP speculator",
        ("mlp_speculator",),
        None,
        Passes.ONE,
        "one pass of small heads",
        vllm=("0.32.0",),
        logits=DraftLogits.NONE,
        refusal=_NOT_OFFERED,
    ),
)

HEAD_METHODS = frozenset(
    method for row in TYPES if row.head is not Head.NEVER for method in row.methods
)
"""The methods whose checkpoints can hold a confidence head."""


def _without_estimates() -> frozenset[str]:
    every = {method for row in TYPES for method in row.methods}
    some = {method for row in TYPES if row.estimates for method in row.methods}
    return frozenset(every - some)


WITHOUT_ESTIMATES = _without_estimates()
"""The methods none of whose drafters estimates acceptance."""
KEPT = frozenset(method for row in TYPES if row.kept for method in row.methods)
"""The methods that vLLM never replaces, where a user wrote them, by what the checkpoint is."""

_MTP = "mtp"


def drafter_type(
    method: str,
    architectures: Collection[str] = (),
    *,
    model_type: str | None = None,
    mtp_modules: int = 1,
    parallel: bool = False,
    has_head: bool = False,
) -> DrafterType | None:
    """The type of a drafter; None where the table does not know the method.

    Args:
        method: ``SpeculativeConfig.method``, or one of vLLM's older names for MTP.
        architectures: of the draft checkpoint.
        model_type: of the draft checkpoint's config.
        mtp_modules: how many MTP modules draft: of those in the checkpoint, at most K.
        parallel: vLLM's ``parallel_drafting``.
        has_head: whether the checkpoint holds a confidence head.
    """
    if method.endswith(f"_{_MTP}"):  # vLLM takes deepseek_mtp and its like for mtp
        method, model_type = _MTP, model_type or method
    return next(
        (
            row
            for row in TYPES
            if method in row.methods
            and (not row.architectures or not set(row.architectures).isdisjoint(architectures))
            and row.model_type in (None, model_type)
            and (not row.many_modules or mtp_modules > 1)
            and (not row.parallel or parallel)
            and (row.head is not Head.HAS or has_head)
        ),
        None,
    )
