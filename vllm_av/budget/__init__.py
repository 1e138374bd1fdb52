"""The draft budget: how many drafts of a step are verified, and which.

    exploration  verifies a request in full now and then, so that no position goes without labels

Rule: vLLM's own decision stands, and what is here only adds to it. A policy never looks at a token
and decides the same on every tensor-parallel rank: from what the scheduler sent to all of them, and
from nothing that one of them counts or measures by itself. Neither vllm nor torch is imported.
"""
