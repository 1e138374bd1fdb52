"""Does the target hand the drafter the hidden states that it reads?

vLLM asks once the weights are loaded, or fails in the first batch.

Rule: what is refused here fails with a fixed number of drafts too.
"""

from collections.abc import Iterator

from vllm_av.preflight.backends.versions import is_old
from vllm_av.preflight.facts import Setup
from vllm_av.preflight.model.lenders import lacks_interface
from vllm_av.preflight.reasons import Reason, ReasonCode
from vllm_av.preflight.rules.words import refusal, spec_place

_OWN_ALONE = ("Qwen4ExpForCausalLM", "Qwen4ExpForConditionalGeneration")
"""Architectures that vLLM lets draft by their own modules or n-grams, and nothing else."""


def states(setup: Setup) -> Iterator[Reason]:
    """Whether its class has the interface."""
    draft, name = setup.draft, setup.target.architecture
    reads = draft.reads_layers or (draft.method == "eagle3" and is_old(setup.vllm))
    if setup.features.get("model_impl") == "transformers":
        return  # a class of vLLM's own around that library's, which hands them out
    found = source = None
    if name in _OWN_ALONE and draft.method not in ("mtp", "ngram", "ngram_gpu"):
        found = "vLLM drafts for it by its own MTP modules or by n-grams alone"
        source = "config.py:Qwen4ExpForConditionalGenerationConfig.verify_and_update_config"
    elif reads and lacks_interface(name, setup.vllm):
        found = "its class in vLLM hands out no hidden states of its layers, which such a drafter "
        found += "reads: vLLM raises once the weights are loaded"
        source = "eagle3_utils.py:set_eagle3_aux_hidden_state_layers"
    if found is not None:
        yield refusal(
            ReasonCode.TARGET,
            asked=f"drafts by {draft.method} for {name}",
            found=found,
            where=_where(setup),
            fix="draft by MTP modules of the target where it has some, or by a draft model",
            source=source,
        )


def width(setup: Setup) -> Iterator[Reason]:
    """Whether they are as wide as the drafter takes them."""
    draft, target = setup.draft, setup.target
    needed, there = draft.target_hidden_size, target.hidden_size
    if not needed or not there or needed == there:
        return
    yield refusal(
        ReasonCode.TARGET,
        asked=f"a drafter for hidden states of {needed:,} values ({draft.source})",
        found=f"the target's have {there:,}, and vLLM fails at the first batch: the drafter was "
        "made for another target",
        where=_where(setup),
        fix="name a drafter that was made for this target",
        source="speculator.py:TargetDependentARSpeculator.propose"
        if draft.method.startswith("eagle")
        else "qwen3_dflash.py:_get_dflash_fc_input_size",
    )


def _where(setup: Setup) -> str:
    return spec_place(setup, "model" if "model" in setup.speculative else "method")


RULES = (states, width)
