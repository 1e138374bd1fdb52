"""The patch series and the installed vLLM: verify, apply, status, revert, export.

Nothing here imports vllm or torch: the tree may be broken, and a patch command answers at once.
"""
