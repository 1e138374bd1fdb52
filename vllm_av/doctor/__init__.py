"""What a bug report needs: versions, patches, plugins, GPUs, settings, and what is wrong.

Nothing here imports vllm, torch or triton: it works where they are missing or broken.
"""

from vllm_av.doctor.report import Report, examine

__all__ = ["Report", "examine"]
