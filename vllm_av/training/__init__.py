"""Trains the package's drafters for SmolLM2-135M-Instruct, offline, on the CPU.

Rule: what a stage writes is a function of the pinned packages, the interpreter's own standard
library and the numbers in these files: seeds and step counts, never a time budget.
"""
