"""What predicts whether a draft token will be accepted: the scorers, and how one is chosen.

Rule: nothing here imports vllm; torch is imported by a scorer when vLLM builds it.
"""
