"""What vLLM loads in every process (entry point ``vllm.general_plugins: vllm_av``).

Rule: cheap, since everybody pays for it, and harmless to whoever does not use this package. What
needs the CPU is imported only where vLLM's platform is the CPU.
"""

from vllm_av.seams import connect
from vllm_av.triton_shim.target import vllm_is_cpu


def register() -> None:
    """Called by vLLM, in some processes more than once."""
    if vllm_is_cpu():
        from vllm_av.cpu import install

        install()
    connect()
