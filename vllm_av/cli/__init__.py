"""The ``vllm-av`` command: one module a verb, no logic."""
