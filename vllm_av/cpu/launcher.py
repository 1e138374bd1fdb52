"""From a launch ``kernel[grid](...)`` to machine code, in microseconds once compiled.

Rule: a kernel that cannot be compiled runs in Triton's interpreter, with one warning per kernel;
it never runs wrong. What a launch is compiled for: each tensor's dtype, each integer's width, each
constant's value. Options such as ``num_warps`` mean nothing here and are dropped.
"""

import logging
import math
import struct
from collections.abc import Callable
from dataclasses import fields
from operator import index
from typing import Any

import torch
import triton.language as tl
from triton.backends.amd.compiler import HIPOptions
from triton.backends.nvidia.compiler import CUDAOptions

from vllm_av.cpu import backend, interpreter, store
from vllm_av.cpu.dtypes import from_torch
from vllm_av.cpu.kernel import ENTRY, Kernel, Parameter
from vllm_av.cpu.surroundings import surroundings, text
from vllm_av.errors import Code, KernelError

_log = logging.getLogger(__name__)
_Pack = Callable[..., bytes]
_KINDS = {
    "int1": tl.int1,
    "int32": tl.int32,
    "int64": tl.int64,
    "uint64": tl.uint64,
    "fp32": tl.float32,
}
# Of Triton's compilers: a launch may have them, and they mean nothing here.
_OPTIONS = {f.name for options in (CUDAOptions, HIPOptions) for f in fields(options)}
_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)
_UINT64 = range(2**64)
# The largest float32 and half of its last bit.
_ROUNDS_TO_INFINITY = 2.0**128 - 2.0**103


class Variant:
    """One compiled signature of a kernel: packs the runtime arguments and calls the code."""

    __slots__ = ("call", "pack")

    def __init__(self, call: backend.Launch, pack: _Pack) -> None:
        self.call = call
        self.pack = pack


class Launcher:
    """The compiled variants of one ``@triton.jit`` function.

    Attributes:
        function: the kernel as a plain Python function.
        refused: whether a variant could not be compiled and is interpreted.
    """

    def __init__(self, jit: Any) -> None:
        self._jit = jit
        self.function = jit.fn
        self.name: str = jit.fn.__name__
        self._names: list[str] = list(jit.arg_names)
        self._constexpr = [p.is_constexpr for p in jit.params]
        self._defaults = {p.name: p.default for p in jit.params if p.has_default}
        self._variants: dict[tuple[Any, ...], Variant | None] = {}
        self.refused = False
        self._given = set(self._names) | _OPTIONS

    def __call__(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Launch."""
        values = self._bind(args, kwargs)
        key: list[Any] = []
        slots: list[Any] = []
        for value, constexpr in zip(values, self._constexpr, strict=True):
            if constexpr:
                key += (value.__class__, _exactly(value))
            elif isinstance(value, torch.Tensor):
                address = value.data_ptr()
                if not address and value.numel():
                    raise self._bad(f"a tensor on {value.device}", "tensors on the CPU")
                key.append(value.dtype)
                slots.append(address)
            elif value is None:
                key.append(None)
            else:
                kind, slot = self._plain(value)
                key.append(kind)
                slots.append(slot)
        found = tuple(key)
        try:
            variant = self._variants[found]
        except KeyError:
            variant = self._compile(found, values)
        if callable(grid):
            grid = grid(dict(zip(self._names, values, strict=True)))
        try:
            x, y, z = (*map(index, grid), 1, 1)[: max(3, len(grid))] if grid else ()
        except (TypeError, ValueError):
            raise self._bad(f"the grid {grid!r}", "a grid of one to three integers") from None
        if variant is None:
            self._interpret((x, y, z), args, kwargs)
        else:
            variant.call(variant.pack(x, y, z, *slots))

    def _interpret(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            interpreter.run(self.function, grid, args, kwargs)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise KernelError(
                Code.KERNEL_NEITHER,
                given=f"the Triton kernel {self.name} is not compiled (a warning above says why), "
                f"and Triton's interpreter stopped with {reason}",
                allowed="kernels that one of the two can run",
                fix="change the kernel or its arguments",
            ) from error

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        if not self._given.issuperset(kwargs):
            unknown = sorted(set(kwargs) - self._given)
            raise self._bad(f"the argument `{unknown[0]}`", "its parameters and Triton's options")
        for name in self._names[: len(args)] if kwargs else ():
            if name in kwargs:
                raise self._bad(f"`{name}` twice", "each parameter once")
        values = list(args)
        missing = object()
        for name in self._names[len(values) :]:
            value = kwargs.get(name, missing)
            if value is missing:
                value = self._defaults.get(name, missing)
            if value is missing:
                raise self._bad(f"no argument `{name}`", "every parameter without a default")
            values.append(value)
        if len(values) > len(self._names):
            raise self._bad(f"{len(values)} arguments", f"at most {len(self._names)}")
        return values

    def _plain(self, value: Any) -> tuple[str, Any]:
        """The kind of a number or a constant, and what goes into its slot."""
        if isinstance(value, bool):
            return "int1", int(value)
        if isinstance(value, int):
            if value in _INT32:
                return "int32", value
            if value in _INT64:
                return "int64", value
            if value in _UINT64:
                return "uint64", value - 2**64
            raise self._bad(f"the integer {value}", "integers of 64 bits")
        if isinstance(value, float):
            if abs(value) >= _ROUNDS_TO_INFINITY:
                value = math.copysign(math.inf, value)
            return "fp32", value
        raise self._bad(
            f"an argument of type {type(value).__name__}", "tensors, numbers, None and constexpr"
        )

    def _bad(self, given: str, allowed: str) -> KernelError:
        return KernelError(
            Code.KERNEL_ARGUMENT,
            given=f"the Triton kernel {self.name} got {given}",
            allowed=f"it takes {allowed}",
            fix="correct the call",
        )

    # -- compiling

    def _compile(self, key: tuple[Any, ...], values: list[Any]) -> Variant | None:
        with interpreter.LOCK:
            if key not in self._variants:
                try:
                    self._variants[key] = self._made(values)
                except KernelError as error:
                    if error.code != Code.KERNEL_UNSUPPORTED:
                        raise
                    self._variants[key] = None
                    if not self.refused:
                        self.refused = True
                        _log.warning("%s", error)
            return self._variants[key]

    def _made(self, values: list[Any]) -> Variant:
        parameters = tuple(
            self._parameter(name, value, constexpr)
            for name, value, constexpr in zip(self._names, values, self._constexpr, strict=True)
        )
        signature = repr([(p.name, str(p.dtype), text(p.constant)) for p in parameters])
        around = surroundings(self.function)
        name = store.key(self._jit.cache_key, f"{signature} {around}")
        kept = store.read(name)
        try:
            code = kept or backend.assemble(Kernel(self.function).compile(parameters))
            call = backend.link(code, ENTRY)
        except RuntimeError as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise KernelError(
                Code.KERNEL_UNSUPPORTED,
                given=f"LLVM refused the code of the Triton kernel {self.name}: {reason[-1]}",
                allowed="code that LLVM takes",
                fix="it runs in Triton's interpreter instead, slowly",
            ) from error
        if kept is None:
            store.write(name, code)
        runtime = [p.dtype for p in parameters if p.dtype is not None]
        form = "".join("f4x" if str(d) == "fp32" else "q" for d in runtime)
        return Variant(call, struct.Struct(f"<qqq{form}").pack)

    def _parameter(self, name: str, value: Any, constexpr: bool) -> Parameter:
        if constexpr or value is None:
            return Parameter(name, constant=value)
        if isinstance(value, torch.Tensor):
            element = from_torch(str(value.dtype))
            if element is None:
                raise KernelError(
                    Code.KERNEL_UNSUPPORTED,
                    given=f"the Triton kernel {self.name} got a {value.dtype} tensor",
                    allowed="integers, bool, float16, bfloat16, float32, float64",
                    fix="it runs in Triton's interpreter instead, slowly",
                )
            return Parameter(name, tl.pointer_type(element))
        return Parameter(name, _KINDS[self._plain(value)[0]])


def _exactly(value: Any) -> Any:
    """A key that tells constants apart which Python takes for equal, such as 0.0 and -0.0."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, tuple | list):
        return tuple((v.__class__, _exactly(v)) for v in value)
    return value


def launch(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
    """Stands in for ``JITFunction.run``."""
    if warmup:
        return
    for hook in self.pre_run_hooks:
        hook(*args, **kwargs)
    try:
        launcher = self.vllm_av_launcher
    except AttributeError:
        launcher = self.vllm_av_launcher = Launcher(self)
    launcher(grid, args, kwargs)
