"""Triton kernels on a machine without a GPU, unmodified.

vLLM's V2 model runner launches Triton kernels. Here they are compiled for the CPU from their own
source: upstream's kernel stays the single truth, and no hand-kept copy can drift from it.

    launcher    a launch -> the variant compiled for its types
    kernel      a kernel -> LLVM text
    statements  control flow
    calls       calls, of tl's functions and of other kernel functions
    expressions names, constants, operators
    frames      a function's syntax tree and scope
    builtins    the functions of triton.language
    ops         operators: promotion, broadcasting, laziness
    indices     which blocks are indices, so that addresses are contiguous
    lanes       loops over the elements of blocks, and when they may be one loop
    arith, maths, ir, dtypes, values, syntax   what these are made of
    backend     LLVM text -> machine code
    store       machine code on disk
    surroundings what its name on disk says of globals and closures
    interpreter Triton's own, for what is not compiled and as the tests' oracle

Rule: nothing in here is imported where vLLM's platform is not the CPU.

LLVM is reached through llvmlite, numba's code generator, which comes with vLLM; numba's own front
end is not used. Its integers promote to 64 bits, which hides contiguous 32-bit loops from LLVM, its
type inference takes seconds a kernel, and Triton's semantics would have to be written twice, once
as Python that numba understands.

The hook is ``JITFunction.run``, the method behind every ``kernel[grid](...)``. The other way,
TRITON_INTERPRET=1, decides at decoration: it would have to be set before vLLM is imported and
would leak into child processes.
"""

import threading

_LOCK = threading.Lock()
_installed = False


def install() -> None:
    """Route every Triton launch of this process to the compiled kernels; again does nothing."""
    global _installed
    with _LOCK:
        if _installed:
            return
        from triton.runtime.jit import JITFunction

        from vllm_av.cpu.launcher import launch

        JITFunction.run = launch
        _installed = True
