"""The functions of ``triton.language`` that kernels call, by name.

Rule: only what is not itself written in Triton is here, plus reductions and a few whose Triton source would be slower.
Everything else in Triton's library (``tl.rand``, ``tl.sigmoid``) is compiled from its own source.

Reductions: ``max``, ``min`` and their indices ignore NaN and take the leftmost of equals; where all are NaN the value is NaN
and the index 0 (Triton leaves that open, its interpreter refuses). A sum of floats is a tree whose shape is
fixed by the compiled code: the same input gives the same sum.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import triton.language as tl

from vllm_av.cpu import arith
from vllm_av.cpu.dtypes import constant, held, known
from vllm_av.cpu.ir import FALSE, TRUE, Builder, Ssa
from vllm_av.cpu.ops import Data, Ops, Unsupported
from vllm_av.cpu.values import Block, Buffer, Const, Group, Pointers, Scalar, Shape, Value, describe

_HELPERS = {"exp": "av_exp", "exp2": "av_exp2", "log": "av_log", "log1p": "av_log1p"}
_INTRINSICS = {"sqrt": "sqrt", "sqrt_rn": "sqrt", "floor": "floor", "ceil": "ceil", "abs": "fabs"}
# Functions that change nothing here: one program is one thread, and hints are hints.
IGNORED = {"debug_barrier", "static_assert", "device_assert", "assume", "static_print"}
_SAME = {"multiple_of", "max_contiguous", "max_constancy", "to_tensor", "constexpr"}
_OPERATORS = {"add", "sub", "mul"}
_UNROLLED = 32


class Builtins(Ops):
    """``tl.*`` and the methods of tensors."""

    def find(self, name: str) -> Callable[..., Value] | None:
        """The function for ``tl.<name>``, or None if it is to be compiled from its source."""
        if name in IGNORED:
            return lambda *_, **__: Const(None)
        if name in _SAME:
            return lambda x, *_, **__: self.tensor(x) if name == "to_tensor" else x
        if name in _OPERATORS:
            return lambda x, y, **_: self.binary(name, x, y)
        if name in _HELPERS or name == "log2":
            return lambda x, **_: self._helper(name, x)
        if name in _INTRINSICS:
            return lambda x: self._intrinsic(_INTRINSICS[name], x)
        found: Callable[..., Value] | None = getattr(self, f"tl_{name}", None)
        return found

    # -- memory

    def tl_load(
        self, pointer: Value, mask: Value = Const(None), other: Value = Const(None), **_: Value
    ) -> Value:
        mask = _present(mask)
        if isinstance(pointer, Pointers):
            shape = self.shape_of(pointer, mask, other)
            masks = None if _absent(mask) else self.broadcast(self.truth(mask), shape)
            default = None
            if not _absent(other):
                default = self.broadcast(self.cast(other, pointer.element), shape)
            return self.lanes.load(self._widened(pointer, shape), masks, default)
        pointer, element = self._scalar_pointer(pointer)
        self.lanes.before_scalar_access(writes=False)
        b = self.b
        address = b.pure("ptr", f"inttoptr {pointer.ssa} to ptr")
        if _absent(mask):
            return Scalar(element, arith.load(b, element, address))
        default = self.cast(Const(0) if _absent(other) else other, element)
        condition = self._scalar(self.truth(mask))
        x = self._guarded(
            condition.ssa, lambda: arith.load(b, element, address), self._scalar(default).ssa
        )
        return Scalar(element, x)

    def tl_store(
        self, pointer: Value, value: Value, mask: Value = Const(None), **_: Value
    ) -> Value:
        mask = _present(mask)
        if isinstance(pointer, Pointers):
            data = self.cast(value, pointer.element)
            shape = self.shape_of(pointer, data, mask)
            masks = None if _absent(mask) else self.broadcast(self.truth(mask), shape)
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

        if _absent(mask):
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
        mask = _present(mask)
        if not isinstance(pointer, Pointers):
            raise Unsupported("atomic on a scalar pointer")
        data = self.cast(value, pointer.element)
        if not pointer.element.is_int() or str(pointer.element) == "int1":
            raise Unsupported(f"atomic on {pointer.element}")
        shape = self.shape_of(pointer, data, mask)
        masks = None if _absent(mask) else self.broadcast(self.truth(mask), shape)
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
        return self.arange(_number(start), _number(end))

    def tl_full(self, shape: Value, value: Value, dtype: Value, **_: Value) -> Value:
        data = self.cast(value, _object(dtype))
        sizes = _shape(shape)
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
        if not _absent(fp_downcast_rounding):
            raise Unsupported("fp_downcast_rounding")
        target = _object(dtype)
        if isinstance(bitcast, Const) and bitcast.value:
            return self.bitcast(x, target)
        return self.cast(x, target)

    def tl_reshape(self, x: Value, *shape: Value, can_reorder: Value = Const(False)) -> Value:
        sizes = _shape(shape[0]) if len(shape) == 1 else tuple(_number(s) for s in shape)
        data = self.data(x)
        return self.reshape(self.broadcast(data, (1,)) if isinstance(data, Scalar) else data, sizes)

    def tl_broadcast_to(self, x: Value, *shape: Value) -> Value:
        sizes = _shape(shape[0]) if len(shape) == 1 else tuple(_number(s) for s in shape)
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
        if _object(propagate_nan) not in (None, tl.PropagateNan.NONE):
            raise Unsupported("propagate_nan")
        return self.binary(op, x, y)

    def tl_cdiv(self, x: Value, y: Value) -> Value:
        return self.binary("div", self.binary("sub", self.binary("add", x, y), Const(1)), y)

    def tl_umulhi(self, x: Value, y: Value) -> Value:
        dtype = self.data(y if isinstance(x, Const) else x).dtype
        a, c = self.cast(x, dtype), self.cast(y, dtype)
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
        if name == "log2":
            return self.binary("mul", self._helper("log", x), Const(1.4426950408889634))
        return self.elementwise(
            dtype,
            lambda b, v: arith.narrow(b, dtype, b.helper("float", _HELPERS[name], v)),
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

    # -- reductions

    def tl_sum(
        self,
        input: Value,
        axis: Value = Const(None),
        keep_dims: Value = Const(False),
        dtype: Value = Const(None),
    ) -> Value:
        block = self._reducible(input, keep_dims)
        target = _object(dtype)
        if target is None:
            target = block.dtype
            if target.is_int() and target.int_bitwidth < 32:
                target = tl.int32 if target.is_int_signed() else tl.uint32
        block = self._block(self.cast(block, target))
        if len(block.shape) > 1 and not _absent(axis):
            return self._sum_along(block, _number(axis))
        total = self._accumulator(target, 0)
        flags = "reassoc " if target.is_floating() else ""
        op = "fadd" if target.is_floating() else "add"

        def update(lane: Ssa, x: Ssa) -> None:
            before = self._read(total)
            self._write(total, self.b.effect(x.ty, f"{op} {flags}{before}, {x.ref}"))

        self.lanes.reduce(block, update)
        return Scalar(target, self._read(total))

    def _sum_along(self, block: Block, axis: int) -> Value:
        """A sum along one axis, unrolled."""
        size = block.shape[axis]
        if size > _UNROLLED:
            raise Unsupported(f"sum of {size} along one axis of several")
        shape = block.shape[:axis] + block.shape[axis + 1 :]
        inner = prod(block.shape[axis + 1 :])
        total: Value | None = None
        for k in range(size):

            def at(b: Builder, lane: Ssa, k: int = k) -> Ssa:
                outer = b.pure("i64", f"udiv {lane}, {inner}")
                rest = b.pure("i64", f"urem {lane}, {inner}")
                row = b.pure("i64", f"mul {outer}, {size}")
                row = b.pure("i64", f"add {row}, {k}")
                row = b.pure("i64", f"mul {row}, {inner}")
                return b.pure("i64", f"add {row}, {rest.ref}")

            part = self.indexed(block, shape, at)
            total = part if total is None else self.binary("add", total, part)
        assert total is not None
        return total

    def tl_max(
        self,
        input: Value,
        axis: Value = Const(None),
        return_indices: Value = Const(False),
        return_indices_tie_break_left: Value = Const(True),
        keep_dims: Value = Const(False),
    ) -> Value:
        return self._best("max", input, bool(_object(return_indices)), keep_dims)

    def tl_min(
        self,
        input: Value,
        axis: Value = Const(None),
        return_indices: Value = Const(False),
        return_indices_tie_break_left: Value = Const(True),
        keep_dims: Value = Const(False),
    ) -> Value:
        return self._best("min", input, bool(_object(return_indices)), keep_dims)

    def tl_argmax(
        self,
        input: Value,
        axis: Value,
        tie_break_left: Value = Const(True),
        keep_dims: Value = Const(False),
    ) -> Value:
        best = self._best("max", input, True, keep_dims)
        assert isinstance(best, Group)
        return best.items[1]  # type: ignore[no-any-return]

    def tl_argmin(
        self,
        input: Value,
        axis: Value,
        tie_break_left: Value = Const(True),
        keep_dims: Value = Const(False),
    ) -> Value:
        best = self._best("min", input, True, keep_dims)
        assert isinstance(best, Group)
        return best.items[1]  # type: ignore[no-any-return]

    def tl_cumsum(
        self, input: Value, axis: Value = Const(0), reverse: Value = Const(False)
    ) -> Value:
        block = self._reducible(input, Const(False))
        if len(block.shape) != 1 or _object(reverse):
            raise Unsupported("cumsum of more than one dimension, or reversed")
        target = block.dtype
        total = self._accumulator(target, 0)
        result = self.lanes.buffer(target, block.lanes)
        op = "fadd" if target.is_floating() else "add"

        def update(lane: Ssa, x: Ssa) -> None:
            so_far = self.b.effect(x.ty, f"{op} {self._read(total)}, {x.ref}")
            self._write(total, so_far)
            self.lanes.put(result, lane, so_far)

        self.lanes.reduce(block, update)
        return self.lanes.filled(result, block)

    def _best(self, op: str, value: Value, indices: bool, keep_dims: Value) -> Value:
        block = self._reducible(value, keep_dims)
        if len(block.shape) > 1:
            raise Unsupported(f"{op} of more than one dimension")
        dtype = block.dtype
        if dtype.is_floating() and str(dtype) in ("fp16", "bf16"):
            dtype = tl.float32
        elif dtype.is_int() and dtype.int_bitwidth < 32 and not indices:
            dtype = tl.int32
        block = self._block(self.cast(block, dtype))
        if indices:
            block.keep = True
        key = _key_type(dtype)
        worst = key.get_int_min_value() if op == "max" else key.get_int_max_value()
        best = self._accumulator(key, worst)

        def update(lane: Ssa, x: Ssa) -> None:
            x = _to_key(self.b, dtype, x, worst)
            self._write(best, arith.binary(self.b, op, key, self._read(best), x))

        self.lanes.reduce(block, update)
        found = _from_key(self.b, dtype, self._read(best))
        return self._first(op, block, found) if indices else Scalar(dtype, found)

    def _first(self, op: str, block: Block, best: Ssa) -> Value:
        """The best value and the first lane that has it."""
        b, dtype, count = self.b, block.dtype, block.lanes
        index = self._accumulator(tl.int32, count)

        def update(lane: Ssa, x: Ssa) -> None:
            equal = arith.compare(b, "eq", dtype, x, best)
            at = b.pure("i32", f"trunc {lane} to i32")
            at = arith.select(b, equal, at, Ssa("i32", str(count)))
            self._write(index, arith.binary(b, "min", tl.int32, self._read(index), at))

        self.lanes.reduce(block, update)
        first = self._read(index)
        nowhere = b.pure("i1", f"icmp eq {first}, {count}")
        if dtype.is_floating():
            # The interpreter takes NaN for the worst number when it looks for the place.
            bound = float("-inf") if op == "max" else float("inf")
            tie = arith.compare(b, "eq", dtype, best, arith.literal(dtype, bound))
            nowhere = arith.logical(b, "or", nowhere, tie)
        first = arith.select(b, nowhere, Ssa("i32", "0"), first)
        return Group((Scalar(dtype, best), Scalar(tl.int32, first)))

    def _reducible(self, value: Value, keep_dims: Value) -> Block:
        if _object(keep_dims):
            raise Unsupported("keep_dims")
        return self._block(self.data(value))

    def _block(self, value: Data) -> Block:
        if isinstance(value, Block):
            return value
        raise Unsupported("a scalar where a block is needed")

    def _accumulator(self, dtype: Any, start: float) -> Buffer:
        ty = held(dtype)
        buffer = Buffer(self.b.alloca(ty, 1), dtype)
        self.b.emit(f"store {ty} {constant(dtype, start)}, {buffer.pointer}")
        return buffer

    def _read(self, buffer: Buffer) -> Ssa:
        ty = held(buffer.dtype)
        return self.b.effect(ty, f"load {ty}, {buffer.pointer}")

    def _write(self, buffer: Buffer, value: Ssa) -> None:
        self.b.emit(f"store {value}, {buffer.pointer}")


# Floats are compared as integers of the same order, because LLVM vectorises an integer maximum, and a maximum of
# floats only where it may assume that there is no NaN. NaN becomes the integer beyond the worst, which maps
# back to a NaN: so it loses against every number, and a block of nothing else gives NaN.


def _key_type(dtype: Any) -> Any:
    return {"fp32": tl.int32, "fp64": tl.int64}.get(str(dtype), dtype)


def _to_key(b: Builder, dtype: Any, x: Ssa, worst: int) -> Ssa:
    if not dtype.is_floating():
        return x
    key = _flipped(b, arith.to_bits(b, dtype, x))
    real = b.pure("i1", f"fcmp ord {x}, {x.ref}")
    return arith.select(b, real, key, Ssa(key.ty, str(worst)))


def _from_key(b: Builder, dtype: Any, key: Ssa) -> Ssa:
    return arith.from_bits(b, dtype, _flipped(b, key)) if dtype.is_floating() else key


def _flipped(b: Builder, bits: Ssa) -> Ssa:
    """All bits but the sign inverted where the sign is set; its own inverse."""
    sign = b.pure(bits.ty, f"ashr {bits}, {int(bits.ty[1:]) - 1}")
    return b.pure(bits.ty, f"xor {bits}, {b.pure(bits.ty, f'lshr {sign}, 1').ref}")


def _absent(value: Value) -> bool:
    return isinstance(value, Const) and value.value is None


def _present(mask: Value) -> Value:
    """A mask that is known to be true is no mask."""
    return Const(None) if isinstance(mask, Const) and mask.value is True else mask


def _object(value: Value) -> Any:
    if not isinstance(value, Const):
        raise Unsupported(f"{describe(value)} where a constant is needed")
    return value.value


def _number(value: Value) -> int:
    found = _object(value)
    if not isinstance(found, int):
        raise Unsupported(f"{found!r} where a constant integer is needed")
    return found


def _shape(value: Value) -> Shape:
    if isinstance(value, Group):
        return tuple(_number(v) for v in value.items)
    found = _object(value)
    if isinstance(found, int):
        return (found,)
    return tuple(int(getattr(v, "value", v)) for v in found)
