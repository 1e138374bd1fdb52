"""Connects this package to vLLM, all of it or nothing.

    contract    which seams this vLLM has
    config      reads adaptive_verification_config for vLLM
    scorer      makes the scorer for vLLM
    budget      makes the draft budget's policy for vLLM
    check       tells vLLM every reason against adaptive verification, before a weight is loaded
    arguments   tells mistakes in a config before vLLM loads anything for it
    command     lets the program ``vllm`` end in one line

Rule: whoever does not enable adaptive verification sees nothing of this package. Where the seams
are missing, only ``arguments`` and ``command`` are connected, to say so.
"""

import logging

from vllm_av.seams import arguments, budget, check, command, config, contract, scorer

__all__ = ["connect"]

# A child of vLLM's own logger: vLLM shows what its loggers say, and only that.
_log = logging.getLogger(f"vllm.{__name__}")


def connect() -> None:
    """Connect; again is fine. Never raises: a vLLM that cannot be connected still serves."""
    try:
        seams = contract.found()
        if seams is contract.Seams.ALL:
            # A validator without a factory would let a block pass that nobody reads.
            scorer.require_free()
            budget.require_free()
            check.require_free()
            config.connect()
            scorer.connect()
            budget.connect()
            check.connect()
        arguments.connect(seams)
        command.connect()
    except Exception:
        _log.exception(
            "vllm_av cannot be connected to this vLLM; adaptive_verification_config will be refused"
        )
