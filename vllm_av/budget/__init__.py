"""The draft budget: how many drafts of a step are verified, and which.

    around       a policy around another one
    exploration  verifies a request in full now and then, so that no position goes without labels
    few          verifies everything while there are few requests
    gain         leaves drafts out only where enough is predicted to be gained by it
    scale        scales what verifying more tokens is taken to cost
    stack        all of them, in their order
    costs        what steps cost, in a file

Rule: vLLM's own decision stands, and what is here only adds to it. A policy never looks at a token
and decides the same on every tensor-parallel rank: from what the scheduler sent to all of them, and
from nothing that one of them counts or measures by itself. Neither vllm nor torch is imported.
"""
