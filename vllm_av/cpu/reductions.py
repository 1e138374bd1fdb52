"""Reductions over the lanes of a block, and sums along one of its axes.

Rule: ``max``, ``min`` and their indices ignore NaN and take the leftmost of equals; where all are
NaN the value is NaN and the index 0 (Triton leaves that open, its interpreter refuses). A sum of
floats is a tree whose shape is fixed by the compiled code: the same input gives the same sum.
"""

from functools import partialmethod
from math import prod
from typing import Any

import triton.language as tl

from vllm_av.cpu import arith
from vllm_av.cpu.arguments import absent, number, python_object
from vllm_av.cpu.dtypes import DType, constant, held
from vllm_av.cpu.ir import Builder, Ssa
from vllm_av.cpu.ops import Ops, Unsupported
from vllm_av.cpu.values import Block, Buffer, Const, Data, Group, Scalar, Value

_UNROLLED = 32


class Reductions(Ops):
    """``tl.sum`` and its kin."""

    def tl_sum(
        self,
        input: Value,
        axis: Value = Const(None),
        keep_dims: Value = Const(False),
        dtype: Value = Const(None),
    ) -> Value:
        block = self._reducible(input, keep_dims)
        target = _sum_type(block.dtype, dtype)
        block = self._block(self.cast(block, target))
        if len(block.shape) > 1 and not absent(axis):
            return self._sum_along(block, number(axis) % len(block.shape))
        total = self._accumulator(target, 0)
        flags = "reassoc " if target.is_floating() else ""
        op = "fadd" if target.is_floating() else "add"

        def update(lane: Ssa, x: Ssa) -> None:
            before = self._read(total)
            self._write(total, self.b.effect(x.ty, f"{op} {flags}{before}, {x.ref}"))

        self.lanes.reduce(block, update)
        return Scalar(target, arith.narrow(self.b, target, self._read(total)))

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
        *,
        op: str = "max",
    ) -> Value:
        return self._best(op, input, bool(python_object(return_indices)), keep_dims)

    tl_min = partialmethod(tl_max, op="min")

    def tl_argmax(
        self,
        input: Value,
        axis: Value,
        tie_break_left: Value = Const(True),
        keep_dims: Value = Const(False),
        *,
        op: str = "max",
    ) -> Value:
        best = self._best(op, input, True, keep_dims)
        assert isinstance(best, Group)
        return best.items[1]  # type: ignore[no-any-return]

    tl_argmin = partialmethod(tl_argmax, op="min")

    def tl_cumsum(
        self,
        input: Value,
        axis: Value = Const(0),
        reverse: Value = Const(False),
        dtype: Value = Const(None),
    ) -> Value:
        block = self._reducible(input, Const(False))
        if len(block.shape) != 1 or python_object(reverse):
            raise Unsupported("cumsum of more than one dimension, or reversed")
        target = _sum_type(block.dtype, dtype)
        block = self._block(self.cast(block, target))
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
        if python_object(keep_dims):
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


def _sum_type(given: DType, wanted: Value) -> DType:
    """Triton's: small integers are summed in 32 bits of their sign, a truth counts as unsigned."""
    if not absent(wanted):
        return python_object(wanted)
    if given.is_int() and given.int_bitwidth < 32:
        return tl.int32 if given.is_int_signed() else tl.uint32
    return given


# Floats are compared as integers of the same order, because LLVM vectorises an integer maximum,
# and a maximum of floats only where it may assume that there is no NaN. NaN becomes the integer
# beyond the worst, which maps back to a NaN: so it loses against every number, and a block of
# nothing else gives NaN.


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
