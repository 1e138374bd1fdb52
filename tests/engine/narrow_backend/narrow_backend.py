"""Puts an attention backend that cannot do adaptive verification in the place of the CPU's own.

As a plugin of vLLM's it does so in every process whose environment says ``VARIABLE``: ``always``,
so that the config shows it, or ``built``, where it shows in the built layers alone, as with a model
that names its backend in its own code.
"""

import os

VARIABLE = "NARROW_BACKEND"


def register() -> None:
    """Called by vLLM in every process."""
    if VARIABLE in os.environ:
        from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

        register_backend(AttentionBackendEnum.CPU_ATTN, f"{__name__}.NarrowBackend")


def __getattr__(name: str) -> type:
    """The class, made when vLLM looks for it: plugins are imported before its backends can be."""
    if name != "NarrowBackend":
        raise AttributeError(name)
    from vllm.config import get_current_vllm_config_or_none
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    class NarrowBackend(CPUAttentionBackend):
        """The CPU's own in all else."""

        @classmethod
        def supports_device_cpu_query_lens_mismatch(cls) -> bool:
            if os.environ[VARIABLE] == "always":
                return False
            config = get_current_vllm_config_or_none()
            return config is None or not config.compilation_config.static_forward_context

    globals()[name] = NarrowBackend
    return NarrowBackend
