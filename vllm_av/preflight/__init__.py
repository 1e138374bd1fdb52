"""May this model, GPU, backend and config run adaptive verification? Every reason at once.

``reasons`` says what an answer is made of; ``facts`` what a question is made of; ``model`` reads
the facts of a checkpoint, ``flags`` those of a command line; ``backends`` knows, or asks vLLM, what
each attention backend can do; ``rules`` judge. The same rules run in the engine, over vLLM's own
config.

Rule: nothing here imports torch or vllm, except in the process that asks vLLM's classes.
"""
