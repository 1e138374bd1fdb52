"""The functions of ``triton.language`` that kernels call, by name.

Rule: only what is not itself written in Triton is here, plus reductions and a few whose Triton
source would be slower. Everything else in Triton's library (``tl.rand``, ``tl.sigmoid``) is
compiled from its own source.
"""

from collections.abc import Callable
from typing import Any

import triton.language as tl

from vllm_av.cpu import arith
from vllm_av.cpu.arguments import absent, number, present, python_object, shape_from
from vllm_av.cpu.dtypes import held, known, promote
from vllm_av.cpu.ir import FALSE, TRUE, Builder, Ssa
from vllm_av.cpu.ops import Unsupported
from vllm_av.cpu.reductions import Reductions
from vllm_av.cpu.values import Block, Const, Data, Pointers, Scalar, Shape, Value, describe
from vllm_av.errors import Code, KernelError

_HELPERS = {"exp", "exp2", "log", "log2", "log1p"}
_INTRINSICS = {"sqrt": "sqrt", "sqrt_rn": "sqrt", "floor": "floor", "ceil": "ceil", "abs": "fabs"}
# Functions that change nothing here: one program is one thread, hints are hints, and an assertion
# on tensors (device_assert, Python's assert) is off in Triton too unless TRITON_DEBUG is set.
IGNORED = {"debug_barrier", "device_assert", "assume", "static_print"}
_SAME = {"multiple_of", "max_contiguous", "max_constancy", "to_tensor", "constexpr"}
_OPERATORS = {"add", "sub", "mul"}


class Builtins(Reductions):
    """``tl.*`` and the methods of tensors."""

    def find(self, name: str) -> Callable[..., Value] | None:
        """The function for ``tl.<name>``, or None if it is to be compiled from its source."""
        if name in IGNORED:
            return lambda *_, **__: Const(None)
        if name in _SAME:
            return lambda x, *_, **__: self.tensor(x) if name == "to_tensor" else x
        if name in _OPERATORS:
            return lambda x, y, **_: self.binary(name, x, y)
        if name in _HELPERS:
            return lambda x, **_: self._helper(name, x)
        if name in _INTRINSICS:
            return lambda x: self._intrinsic(_INTRINSICS[name], x)
        found: Callable[..., Value] | None = getattr(self, f"tl_{name}", None)
        return found

    def tl_static_assert(self, cond: Value, msg: Value = Const("")) -> Value:
        if not python_object(cond):
            raise KernelError(
                Code.KERNEL_ASSERTION,
                given=f"a Triton kernel's static_assert failed: {python_object(msg)}",
                allowed="constants for which it holds",
                fix="launch the kernel with other constants",
            )
        return Const(None)

    # -- memory

    def tl_load(
        self, pointer: Value, mask: Value = Const(None), other: Value = Const(None), **_: Value
    ) -> Value:
        mask = present(mask)
        if isinstance(pointer, Pointers):
            shape = self.shape_of(pointer, mask, other)
            masks = None if absent(mask) else self.broadcast(self.truth(mask), shape)
            others = None
            if not absent(other):
                others = self.broadcast(self.cast(other, pointer.element), shape)
            return self.lanes.load(self._widened(pointer, shape), masks, others)
        pointer, element = self._scalar_pointer(pointer)
        self.lanes.before_scalar_access(writes=False)
        b = self.b
        address = b.pure("ptr", f"inttoptr {pointer.ssa} to ptr")
        if absent(mask):
            return Scalar(element, arith.load(b, element, address))
        default = self.cast(Const(0) if absent(other) else other, element)
        condition = self._scalar(self.truth(mask))
        x = self._guarded(
            condition.ssa, lambda: arith.load(b, element, address), self._scalar(default).ssa
        )
        return Scalar(element, x)

    def tl_store(
        self, pointer: Value, value: Value, mask: Value = Const(None), **_: Value
    ) -> Value:
        mask = present(mask)
        if isinstance(pointer, Pointers):
            data = self.cast(value, pointer.element)
            shape = self.shape_of(pointer, data, mask)
            masks = None if absent(mask) else self.broadcast(self.truth(mask), shape)
            self.lanes.store(self._widened(pointer, shape), self.broadcast(data, shape), masks)
            return Const(None)
        pointer, element = self._scalar_pointer(pointer)
        x = self._scalar(self.cast(value, element)).ssa
        self.lanes.before_scalar_access(writes=True)
        b = self.b
        address = b.pure("ptr", f"inttoptr {pointer.ssa} to ptr")

        def write() -> Ssa:
            arith.store(b, element, address, x)
            return TRUE

        if absent(mask):
            write()
        else:
            self._guarded(self._scalar(self.truth(mask)).ssa, write, FALSE)
        return Const(None)

    def tl_atomic_add(
        self, pointer: Value, value: Value, mask: Value = Const(None), **_: Value
    ) -> Value:
        return self._atomic("add", pointer, value, mask)

    def tl_atomic_or(
        self, pointer: Value, value: Value, mask: Value = Const(None), **_: Value
    ) -> Value:
        return self._atomic("or", pointer, value, mask)

    def _atomic(self, op: str, pointer: Value, value: Value, mask: Value) -> Value:
        mask = present(mask)
        if not isinstance(pointer, Pointers):
            raise Unsupported("atomic on a scalar pointer")
        data = self.cast(value, pointer.element)
        if not pointer.element.is_int() or str(pointer.element) == "int1":
            raise Unsupported(f"atomic on {pointer.element}")
        shape = self.shape_of(pointer, data, mask)
        masks = None if absent(mask) else self.broadcast(self.truth(mask), shape)
        return self.lanes.atomic(
            op, self._widened(pointer, shape), self.broadcast(data, shape), masks
        )

    def _widened(self, pointers: Pointers, shape: Shape) -> Pointers:
        return Pointers(pointers.element, pointers.base, self.broadcast(pointers.offset, shape))

    def _scalar_pointer(self, value: Value) -> tuple[Scalar, Any]:
        if not isinstance(value, Scalar) or not value.dtype.is_ptr():
            raise Unsupported(f"memory access through {describe(value)}")
        if not known(value.dtype.element_ty):
            raise Unsupported(f"pointer to {value.dtype.element_ty}")
        return value, value.dtype.element_ty

    def _scalar(self, value: Data) -> Scalar:
        if isinstance(value, Scalar):
            return value
        raise Unsupported("a block where a scalar is needed")

    def _guarded(self, condition: Ssa, then: Callable[[], Ssa], other: Ssa) -> Ssa:
        b = self.b
        before, yes, done = b.label, b.fresh("yes"), b.fresh("done")
        b.branch_if(condition, yes, done)
        b.start(yes)
        with b.scope():
            x, end = then(), b.label
            b.branch(done)
        b.start(done)
        return b.merge(x.ty, (other, before), (x, end))

    # -- making blocks

    def tl_arange(self, start: Value, end: Value) -> Value:
        return self.arange(number(start), number(end))

    def tl_full(self, shape: Value, value: Value, dtype: Value, **_: Value) -> Value:
        data = self.cast(value, python_object(dtype))
        sizes = shape_from(shape)
        return self.broadcast(data, sizes) if sizes else data

    def tl_zeros(self, shape: Value, dtype: Value) -> Value:
        return self.tl_full(shape, Const(0), dtype)

    def tl_cast(
        self,
        x: Value,
        dtype: Value,
        fp_downcast_rounding: Value = Const(None),
        bitcast: Value = Const(False),
    ) -> Value:
        if not absent(fp_downcast_rounding):
            raise Unsupported("fp_downcast_rounding")
        target = python_object(dtype)
        if isinstance(bitcast, Const) and bitcast.value:
            return self.bitcast(x, target)
        return self.cast(x, target)

    def tl_reshape(self, x: Value, *shape: Value, can_reorder: Value = Const(False)) -> Value:
        sizes = shape_from(shape[0]) if len(shape) == 1 else tuple(number(s) for s in shape)
        data = self.data(x)
        return self.reshape(self.broadcast(data, (1,)) if isinstance(data, Scalar) else data, sizes)

    def tl_broadcast_to(self, x: Value, *shape: Value) -> Value:
        sizes = shape_from(shape[0]) if len(shape) == 1 else tuple(number(s) for s in shape)
        return self.broadcast(self.data(x), sizes)

    def tl_interleave(self, x: Value, y: Value) -> Value:
        a, c = self.data(x), self.data(y)
        shape = self.shape_of(a, c)
        if not shape:
            raise Unsupported("interleave of scalars")
        wide = (*shape[:-1], 2 * shape[-1])

        def half(b: Builder, lane: Ssa) -> Ssa:
            return b.pure("i64", f"lshr {lane}, 1")

        odd = Block(tl.int1, wide, "lane")
        odd.fn = lambda b, lane: b.pure("i1", f"trunc {lane} to i1")
        even = [self.indexed(self.broadcast(v, shape), wide, half) for v in (a, c)]
        return self.where(odd, even[1], even[0])

    # -- elementwise

    def tl_where(self, condition: Value, x: Value, y: Value) -> Value:
        return self.where(condition, x, y)

    def tl_maximum(self, x: Value, y: Value, propagate_nan: Value = Const(None)) -> Value:
        return self._extreme("max", x, y, propagate_nan)

    def tl_minimum(self, x: Value, y: Value, propagate_nan: Value = Const(None)) -> Value:
        return self._extreme("min", x, y, propagate_nan)

    def _extreme(self, op: str, x: Value, y: Value, propagate_nan: Value) -> Value:
        if python_object(propagate_nan) not in (None, tl.PropagateNan.NONE):
            raise Unsupported("propagate_nan")
        return self.binary(op, x, y)

    def tl_cdiv(self, x: Value, y: Value) -> Value:
        return self.binary("div", self.binary("sub", self.binary("add", x, y), Const(1)), y)

    def tl_umulhi(self, x: Value, y: Value) -> Value:
        weak = isinstance(x, Const), isinstance(y, Const)
        dtype = promote(self.data(x).dtype, weak[0], self.data(y).dtype, weak[1])
        if not dtype.is_int() or dtype.int_bitwidth < 32:
            raise Unsupported(f"umulhi of {dtype}")
        a, c = self._operand(x, dtype), self._operand(y, dtype)
        return self.elementwise(dtype, arith.multiply_high, a, c, cost=3)

    def tl_isnan(self, x: Value) -> Value:
        return self.cast(self.binary("ne", x, x), tl.int32)

    def _helper(self, name: str, x: Value) -> Value:
        data = self.data(x)
        if data.dtype.is_int():
            raise Unsupported(f"{name} of {data.dtype}")
        if str(data.dtype) == "fp64":
            if name == "log1p":
                raise Unsupported("log1p of fp64")
            return self.elementwise(
                data.dtype, lambda b, v: b.call("double", f"llvm.{name}.f64", v), data, cost=40
            )
        dtype = data.dtype
        return self.elementwise(
            dtype,
            lambda b, v: arith.narrow(b, dtype, b.helper("float", f"av_{name}", v)),
            data,
            cost=20,
        )

    def _intrinsic(self, name: str, x: Value) -> Value:
        data = self.data(x)
        dtype = data.dtype
        if dtype.is_int():
            if name != "fabs":
                raise Unsupported(f"{name} of {dtype}")
            return self.where(self.binary("lt", x, Const(0)), self.unary("neg", x), x)
        bits = "f64" if held(dtype) == "double" else "f32"
        return self.elementwise(
            dtype,
            lambda b, v: arith.narrow(b, dtype, b.call(v.ty, f"llvm.{name}.{bits}", v)),
            data,
            cost=5,
        )
