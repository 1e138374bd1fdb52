"""The file in which a scorer keeps what it has learnt, so that a restart need not learn it again.

    file      the file: written whole or not at all, read whole or refused
    claim     one server to a file
    samples   tells one checkpoint from another, whose state is not its own
    keeper    hands the device's state to the file while serving, and takes it back at the start

Rule: a state that may not fit (another pair, another K, another estimator, damage) is never loaded.
Neither vllm nor torch is imported at the head.
"""
