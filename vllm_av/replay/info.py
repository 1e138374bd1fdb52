"""What a trace says about itself.

Rule: a trace of a stranger may say little; what it says is checked.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from vllm_av.replay.columns import MAX_POSITIONS, VERSION

Name = Annotated[str, Field(max_length=200)]


class TraceInfo(BaseModel):
    """What a trace says about itself, under the key ``vllm_av.trace`` of the schema's metadata.

    Unknown keys are left out: a later writer may say more.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    version: Literal[1] = VERSION
    num_speculative_tokens: Annotated[int, Field(ge=1, le=MAX_POSITIONS)]
    censoring: Literal["none", "budget"]
    """``none``: every scheduled draft was verified. ``budget``: those that the budget admitted."""
    drafter: Name | None = None
    method: Name | None = None
    target: Name | None = None
    draft: Name | None = None
    vllm: Name | None = None
    vllm_av: Name | None = None
    scorer: Name | None = None
    vocabulary: Annotated[int, Field(ge=1)] | None = None
    draft_sample_method: Name | None = None
