"""Adaptive verification of vLLM's speculative decoding on machines without a GPU.

Importing this package imports neither vllm, torch nor triton.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
