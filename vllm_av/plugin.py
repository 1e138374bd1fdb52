"""What vLLM loads in every process (entry point ``vllm.general_plugins: vllm_av``).

Rule: cheap, since everybody pays for it, and harmless to whoever does not use this package. What
needs the CPU is imported only where vLLM's platform is the CPU.
"""

import logging

from vllm_av.seams import connect
from vllm_av.triton_shim.target import vllm_is_cpu

_log = logging.getLogger(f"vllm.{__name__}")


def register() -> None:
    """Called by vLLM, in some processes more than once."""
    if vllm_is_cpu():
        try:
            from vllm_av.cpu import install

            install()
        except Exception:  # vLLM would not start, whether it needs a kernel or not
            _log.exception("vllm_av cannot run Triton kernels on this CPU")
    connect()
