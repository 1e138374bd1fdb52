"""Trains the package's drafters for SmolLM2-135M-Instruct, offline, on the CPU.

Rule: what a stage writes is a function of the pinned packages, the interpreter with its own
standard library, the kind of processor (bfloat16 rounds by it) and the numbers in these files:
seeds and step counts, never a time budget. ``training.json`` names interpreter and processor.
"""
