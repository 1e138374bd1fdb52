"""What steps cost, in a file, so that an engine need not measure it at every start.

    table      the file: JSON, read whole or refused, written whole or not at all
    identity   whose costs they are, and in what another engine differs
    stored     a policy that has such a file

Rule: costs that may not be this engine's are never used, and never in part. Neither vllm nor torch
is imported.
"""
