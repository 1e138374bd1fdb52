"""The keys of the block, with their meaning, unit, range and default.

The defaults of the estimators are in :mod:`vllm_av.estimator.settings`; null stands for the named
scorer's own. The ranges are wide enough for every use and closed, so that no number leaves float32.

Rule: frozen, strict and closed. A string is no number, true is no number, no key is ignored.
"""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Strict, Tag

from vllm_av.drafters import Start
from vllm_av.estimator.settings import MIXED, EstimatorSettings

POOLED = "pooled_estimator"
ONLINE = "online_estimator"
_UPSTREAM = EstimatorSettings()
MAX_LOG_ODDS = 80.0
"""exp() of it is still finite in float32."""
MAX_POSITIONS = 1024


def _kind(value: Any) -> Literal["number", "list", "null"]:
    if value is None:
        return "null"
    return "list" if isinstance(value, list | tuple) else "number"


Intercept = Annotated[float, Field(ge=-MAX_LOG_ODDS, le=MAX_LOG_ODDS, allow_inf_nan=False)]
# The shape decides which of the two is meant, so that a mistake is told once.
Intercepts = Annotated[
    Annotated[Intercept, Tag("number")]
    | Annotated[
        tuple[Intercept, ...],
        Strict(False),  # a list, as JSON has it
        Field(min_length=1, max_length=MAX_POSITIONS),
        Tag("list"),
    ]
    | Annotated[None, Tag("null")],
    Discriminator(_kind),
]


class _Block(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class EstimatorConfig(_Block):
    """The online acceptance estimators; null is the named one's own default."""

    refit_interval: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description=f"Decode steps between two refits; {MIXED.refit_interval} for {ONLINE}, whose "
        f"first ones come sooner, and {_UPSTREAM.refit_interval} for {POOLED}. Fewer follow the "
        "traffic faster, from fewer labels each.",
        json_schema_extra={"unit": "decode steps"},
    )
    damping: float | None = Field(
        default=None,
        ge=0,
        le=1e6,
        allow_inf_nan=False,
        description="Labels at which the step from the start values is half of the full one; "
        f"{MIXED.damping:g} for {ONLINE}, and {_UPSTREAM.damping:g} for {POOLED}, at every refit. "
        "More is steadier, less is faster.",
        json_schema_extra={"unit": "labels"},
    )
    memory: float = Field(
        default=MIXED.memory,
        ge=10,
        le=1e9,
        allow_inf_nan=False,
        description="Labels of a coefficient after which an older one counts e times less. Less "
        f"follows the traffic faster, more is steadier. Of {ONLINE} only.",
        json_schema_extra={"unit": "labels"},
    )
    ridge: float = Field(
        default=_UPSTREAM.ridge,
        ge=1e-9,
        le=1e6,
        allow_inf_nan=False,
        description="Added to the diagonal of a refit's equations. More holds back coefficients "
        f"about which little was observed. Of {POOLED} only.",
        json_schema_extra={"unit": "labels' weight"},
    )
    initial_slope: float | None = Field(
        default=None,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="Slope of the log-odds before the first refit; null is what is known of the "
        "drafter's type (`vllm-av scorers --json`), else "
        f"{_UPSTREAM.initial_slope:g}. 0 trusts the position alone, 1 the drafter's own "
        "probability.",
        json_schema_extra={"unit": "log-odds per log-odds"},
    )
    initial_intercepts: Intercepts = Field(
        default=None,
        description="Intercept before the first refit: a number for all draft positions, or a "
        "list of num_speculative_tokens numbers; null is what is known of the drafter's type, "
        f"else {_UPSTREAM.initial_intercepts:g}. Higher means verify more.",
        json_schema_extra={"unit": "log-odds"},
    )
    log_odds_clamp: float = Field(
        default=_UPSTREAM.log_odds_clamp,
        ge=1,
        le=MAX_LOG_ODDS,
        allow_inf_nan=False,
        description="The drafter's log-odds are cut off at plus and minus this. Less keeps a "
        "drafter that is sure of itself from outweighing the rest.",
        json_schema_extra={"unit": "log-odds"},
    )

    def settings(self, scorer: str, start: Start | None = None) -> EstimatorSettings:
        """The numbers in force.

        Args:
            scorer: whose defaults stand for null.
            start: of the drafter's type, where that is known.
        """
        default = MIXED if scorer == ONLINE else _UPSTREAM
        if start is not None:
            default = replace(
                default, initial_slope=start.slope, initial_intercepts=start.intercept
            )
        given = {name: value for name, value in dict(self).items() if value is not None}
        return replace(default, **given)


class BudgetConfig(_Block):
    """How many drafts of a step are verified; of all scorers alike."""

    min_predicted_gain: float = Field(
        default=0.02,
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="Drafts are left out of a step only where that is predicted to yield at least "
        "this much more tokens per time than verifying all of them. More trims less, and so pays "
        "for trimming less often; 0 trims wherever anything is predicted to be gained.",
        json_schema_extra={"unit": "share of the tokens per time"},
    )
    min_requests: int = Field(
        default=1,
        ge=1,
        le=1_000_000,
        description="In a step of fewer requests with drafts than this, all drafts are verified.",
        json_schema_extra={"unit": "requests"},
    )
    cost_scale: float = Field(
        default=1.0,
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="Factor on what verifying more tokens is measured to cost, beyond a step "
        "without drafts. More trims more, less trims less; 0 trims nothing.",
        json_schema_extra={"unit": "times the measured cost"},
    )
    cost_table_path: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="A file with what steps cost. Where it is there the engine starts without "
        "measuring them, else it measures and writes it; its folder must exist. One of another "
        "model, drafter, GPU, layout, size or version is refused (docs/cost-table.md).",
        json_schema_extra={"unit": "path"},
    )


class AdaptiveVerificationConfig(_Block):
    """The value of ``adaptive_verification_config`` in vLLM's ``--speculative-config``."""

    scorer: str = Field(
        default="auto",
        description="What predicts whether a draft token will be accepted: auto (the checkpoint's "
        "confidence head where it has one, else online_estimator), confidence_head, "
        "online_estimator, pooled_estimator, max_probability, or a scorer of another package "
        "(`vllm-av scorers`).",
        examples=["auto", "confidence_head", ONLINE, POOLED, "max_probability"],
        json_schema_extra={"unit": "name"},
    )
    allow_lossy: bool = Field(
        default=False,
        description="Whether a scorer may be used that looks at the drawn token. Such a one makes "
        "the output differ from the target model's own distribution.",
        json_schema_extra={"unit": "true or false"},
    )
    on_unsupported: Literal["error", "fixed_k"] = Field(
        default="error",
        description="What happens where the model, the GPU or a setting rules adaptive "
        "verification out (`vllm-av check`): error tells every reason and starts no engine; "
        "fixed_k tells them in one warning and serves without it, with as many drafts as "
        "num_speculative_tokens says. A mistake in this block is an error in any case.",
        json_schema_extra={"unit": "word"},
    )
    exploration: float = Field(
        default=0.01,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="Share of the requests' steps in which a request is verified to its last "
        "draft, whatever its survival, so that a position that is never worth verifying can show "
        "when it is again. 0 switches it off, 1 verifies every draft. Scorers that learn nothing "
        "explore nothing, unless a trace is recorded.",
        json_schema_extra={"unit": "share of the requests' steps"},
    )
    state_file: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="A file in which a scorer that learns keeps what it has learnt, and from which "
        "a restart goes on. It need not exist yet, its folder must. One of another pair, number of "
        "drafts or estimator is put aside.",
        json_schema_extra={"unit": "path"},
    )
    trace: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="A folder that does not exist yet, into which every draft is recorded with "
        "what the target made of it, for `vllm-av trace replay` and `report`: numbers alone, no "
        "token and no text. With exploration 1 every draft is verified, and none lacks its label.",
        json_schema_extra={"unit": "path"},
    )
    estimator: EstimatorConfig = Field(
        default_factory=EstimatorConfig,
        description="The online acceptance estimator's numbers. Refused beside this package's "
        "scorers that never ask it; those of other packages are not checked for that.",
    )
    budget: BudgetConfig = Field(
        default_factory=BudgetConfig,
        description="How many drafts of a step are verified, and by what costs that is decided.",
    )
