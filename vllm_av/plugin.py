"""What vLLM loads in every process (entry point ``vllm.general_plugins: vllm_av``).

Rule: where vLLM's platform is not the CPU, this does nothing and imports nothing.
"""

from vllm_av.triton_shim.target import vllm_is_cpu


def register() -> None:
    """Called by vLLM, in some processes more than once."""
    if not vllm_is_cpu():
        return
    from vllm_av.cpu import install

    install()
