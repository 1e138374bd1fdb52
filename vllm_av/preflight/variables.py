"""The environment variables that vLLM reads and that matter to adaptive verification.

Rule: no other one is looked at, or kept.
"""

from collections.abc import Mapping

from vllm_av.config.text import shown
from vllm_av.errors import CheckError, Code

_VARIABLES = (
    "TORCH_COMPILE_DISABLE",
    "VLLM_ADAPTIVE_VERIFICATION_PROFILE_REAL_ROWS",
    "VLLM_BATCH_INVARIANT",
    "VLLM_MOE_SKIP_PADDING",
    "VLLM_USE_BREAKABLE_CUDAGRAPH",
    "VLLM_USE_V2_MODEL_RUNNER",
)
_NUMBERS = (
    "VLLM_ADAPTIVE_VERIFICATION_PROFILE_REAL_ROWS",
    "VLLM_BATCH_INVARIANT",
    "VLLM_MOE_SKIP_PADDING",
    "VLLM_USE_V2_MODEL_RUNNER",
)
"""Those that vLLM reads as a whole number, 0 for no."""
_ROCM = "VLLM_ROCM_"


def that_matter(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that vLLM reads and that matter here.

    Raises:
        CheckError: ``AV-QUESTION-FLAG``: a number is none.
    """
    found = {
        name: value
        for name, value in sorted(variables.items())
        if name in _VARIABLES or name.startswith(_ROCM)
    }
    for name in _NUMBERS:
        if name in found and not found[name].strip().isdigit():
            raise CheckError(
                Code.QUESTION_FLAG,
                given=f"the variable {name} is {shown(found[name])}",
                allowed="0 or 1",
                fix="correct it, or unset it",
            )
    return found
