"""Triton's own interpreter: the oracle of the tests, and what runs a kernel that is not compiled.

Rule: it leaves no trace. The interpreter replaces functions in ``triton.language`` while it runs
and forgets to put some back (those replaced for nested calls); here everything is put back. It
also cannot call ``@triton.jit`` functions that were decorated outside TRITON_INTERPRET; while it
runs, they are interpreted too. And ``libdevice``, which is empty without a GPU's backend, gets the
functions that vLLM's kernels use, from NumPy.

It also mends a fault of Triton 3.9's interpreter: a comparison's result is labelled with its
operands' type, so a scalar one that meets a block turns into integers ("mask has unsupported
dtype" in vLLM's gumbel kernel).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import triton.language as tl
import triton.language.extra.libdevice as libdevice
from triton.runtime.interpreter import (
    InterpretedFunction,
    InterpreterBuilder,
    TensorHandle,
    interpreter_builder,
)
from triton.runtime.jit import JITFunction

# What the interpreter replaces is global to the process.
LOCK = threading.RLock()
_PATCHED = [tl, tl.core, tl.math, tl.tensor, tl.dtype, tl.condition]
_PATCHED += [tl.core.tensor_descriptor_base, libdevice]


def _elementwise(operation: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def apply(x: Any) -> Any:
        return tl.tensor(TensorHandle(operation(x.handle.data), x.handle.dtype), x.type)

    return apply


def _isnan(x: Any) -> Any:
    data = np.isnan(x.handle.data).astype(np.int32)
    kind = tl.block_type(tl.int32, list(x.shape)) if x.type.is_block() else tl.int32
    return tl.tensor(TensorHandle(data, tl.int32), kind)


_LIBDEVICE = {"log1p": _elementwise(np.log1p), "isnan": _isnan}


def _labelled(compare: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def apply(x: Any, y: Any) -> Any:
        return TensorHandle(compare(interpreter_builder, x, y).data, tl.int1)

    return apply


_COMPARISONS = {
    name: _labelled(getattr(InterpreterBuilder, name))
    for name in dir(InterpreterBuilder)
    if name.startswith(("create_icmp", "create_fcmp"))
}


@cache
def _interpreted(function: Any) -> Any:
    return InterpretedFunction(function)


def _call_interpreted(self: Any, *args: Any, **kwargs: Any) -> Any:
    return _interpreted(self.fn)(*args, **kwargs)


@contextmanager
def _scope() -> Iterator[None]:
    before = [dict(vars(place)) for place in _PATCHED]
    call = JITFunction.__call__
    JITFunction.__call__ = _call_interpreted
    vars(libdevice).update(_LIBDEVICE)
    vars(interpreter_builder).update(_COMPARISONS)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        JITFunction.__call__ = call
        for name in _COMPARISONS:
            delattr(interpreter_builder, name)
        for place, attributes in zip(_PATCHED, before, strict=True):
            for name in set(vars(place)) - set(attributes):
                delattr(place, name)
            for name, value in attributes.items():
                if vars(place)[name] is not value:
                    setattr(place, name, value)


def run(function: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Launch a kernel (its plain Python function) in the interpreter."""
    with LOCK, _scope():
        launch: Callable[..., None] = _interpreted(function).run
        launch(*args, grid=grid, warmup=False, **kwargs)
