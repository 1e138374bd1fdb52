"""The Triton backend named ``cpu``: what vLLM looks for to turn Triton on, and nothing more.

Rule: it cannot hurt a GPU host. Triton imports ``.compiler`` and ``.driver`` of every
``triton.backends`` entry point on ``import triton`` and refuses two active drivers. So these
modules import nothing but Triton's base classes, and the driver is inactive unless the installed
vLLM is built for the CPU and no other driver is active.

The kernels are compiled in :mod:`vllm_av.cpu`, which vLLM's plugin hooks in; without it a launch
is refused in one line.
"""
