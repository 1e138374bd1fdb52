"""For all tests: threads that do not fight for few cores, and nothing from the network."""

import os

# Read when torch and vLLM are imported, so before any test module is.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
