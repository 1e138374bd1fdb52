"""Labelled-draft traces: record, read, measure, replay any scorer, report.

Rule: nothing here imports vllm when it is imported; a trace is read without vLLM and without torch.
"""
