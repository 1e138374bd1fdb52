"""Adaptive verification for vLLM's speculative decoding: configurable, checked, calibrated.

Importing this package imports neither vllm, torch nor triton.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
