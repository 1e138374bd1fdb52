"""Triton's operators on values of a kernel: promotion, broadcasting, laziness.

Rule: an operator on scalars is emitted at once, an operator on blocks gives a lazy block. What an
operator *means* is in :mod:`vllm_av.cpu.arith`, which type it has in Triton itself
(:mod:`vllm_av.cpu.dtypes`).
"""

import operator
from collections.abc import Callable
from math import prod
from typing import Any

import triton.language as tl

from vllm_av.cpu import arith, indices
from vllm_av.cpu.dtypes import DType, known, of_python, promote, promote_integers, size
from vllm_av.cpu.ir import Builder, Ssa, i64
from vllm_av.cpu.lanes import Lanes
from vllm_av.cpu.values import (
    Affine,
    Block,
    Const,
    Data,
    Pointers,
    Scalar,
    Shape,
    Value,
    describe,
    splat,
)


class Unsupported(Exception):
    """A construct that is not compiled; the message says which."""


_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "div": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "max": max,
    "min": min,
}
_PYTHON_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "invert": operator.invert,
    "pos": operator.pos,
}
_COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne"}
_BITWISE = {"and", "or", "xor", "shl", "shr"}
_COST = {"div": 10, "mod": 10, "truediv": 10}

Number = bool | int | float


class Ops:
    """The operators, bound to one kernel's builder and lanes."""

    def __init__(self, b: Builder, lanes: Lanes) -> None:
        self.b = b
        self.lanes = lanes

    # -- conversions

    def tensor(self, value: Value) -> Value:
        """Python numbers become scalars of their own type; all else stays."""
        if isinstance(value, Const) and isinstance(value.value, Number):
            dtype = of_python(value.value)
            return Scalar(dtype, arith.literal(dtype, value.value))
        return value

    def data(self, value: Value) -> Data:
        """A scalar or a block.

        Raises:
            Unsupported: it is neither, nor a number.
        """
        value = self.tensor(value)
        if isinstance(value, Scalar | Block):
            return value
        raise Unsupported(f"{describe(value)} where a value is needed")

    def cast(self, value: Value, dtype: DType) -> Data:
        """``value.to(dtype)``."""
        if isinstance(value, Const) and isinstance(value.value, Number) and not dtype.is_ptr():
            return Scalar(dtype, arith.literal(dtype, value.value))
        x = self.data(value)
        if x.dtype == dtype:
            return x
        if not known(dtype):
            raise Unsupported(f"type {dtype}")
        source = x.dtype
        result = self.elementwise(dtype, lambda b, v: arith.cast(b, source, dtype, v), x)
        if isinstance(x, Block) and isinstance(result, Block) and str(dtype) == "int64":
            result.affine = x.affine
        return result

    def _operand(self, value: Value, dtype: DType) -> Data:
        """An operand in the type of the operation; as in Triton, a number must fit into it."""
        if isinstance(value, Const) and isinstance(value.value, int) and dtype.is_int():
            low, high = dtype.get_int_min_value(), dtype.get_int_max_value()
            if not low <= value.value <= high:
                raise Unsupported(f"the number {value.value} beside a {dtype}")
        return self.cast(value, dtype)

    def bitcast(self, value: Value, dtype: DType) -> Data:
        """``value.to(dtype, bitcast=True)``."""
        x = self.data(value)
        source = x.dtype
        if size(source) != size(dtype):
            raise Unsupported(f"bitcast of {source} to {dtype}")
        return self.elementwise(dtype, lambda b, v: arith.bitcast(b, source, dtype, v), x)

    def truth(self, value: Value) -> Data:
        """Not zero."""
        x = self.data(value)
        source = x.dtype
        if str(source) == "int1":
            return x
        return self.elementwise(tl.int1, lambda b, v: arith.truth(b, source, v), x)

    # -- shapes

    def shape_of(self, *values: Value) -> Shape:
        """The shape that these broadcast to; () for scalars."""
        shape: Shape = ()
        for value in values:
            other = value.shape if isinstance(value, Block | Pointers) else ()
            if len(other) > len(shape):
                shape, other = other, shape
            padded = (1,) * (len(shape) - len(other)) + other
            for m, n in zip(shape, padded, strict=True):
                if m != n and 1 not in (m, n):
                    raise Unsupported(f"blocks of {list(shape)} and {list(other)} together")
            shape = tuple(max(m, n) for m, n in zip(shape, padded, strict=True))
        return shape

    def broadcast(self, value: Data, shape: Shape) -> Block:
        """A block of exactly this shape."""
        if isinstance(value, Scalar):
            return splat(value, shape)
        if value.shape == shape:
            return value
        padded = (1,) * (len(shape) - len(value.shape)) + value.shape
        if len(padded) != len(shape) or any(
            n not in (1, m) for n, m in zip(padded, shape, strict=True)
        ):
            raise Unsupported(f"a block of {list(value.shape)} as one of {list(shape)}")
        if prod(padded) == prod(shape):
            return self.reshape(value, shape)
        if value.kind == "splat":
            return Block(value.dtype, shape, "splat", args=value.args, cost=0)

        def source_lane(b: Builder, lane: Ssa) -> Ssa:
            index, stride_out, stride_in = i64(0), 1, 1
            for n_in, n_out in reversed(list(zip(padded, shape, strict=True))):
                if n_in != 1:
                    at = lane if stride_out == 1 else b.pure("i64", f"udiv {lane}, {stride_out}")
                    if stride_out * n_out != prod(shape):
                        at = b.pure("i64", f"urem {at}, {n_out}")
                    if stride_in != 1:
                        at = b.pure("i64", f"mul {at}, {stride_in}")
                    index = at if index.ref == "0" else b.pure("i64", f"add {index}, {at.ref}")
                stride_out *= n_out
                stride_in *= n_in
            return index

        return self.indexed(value, shape, source_lane)

    def indexed(self, value: Block, shape: Shape, fn: Callable[[Builder, Ssa], Ssa]) -> Block:
        """The block whose lane is another block's lane ``fn(lane)``."""
        value = self.lanes.settle(value)
        return Block(value.dtype, shape, "index", fn=fn, args=(value,), cost=value.cost + 2)

    def reshape(self, value: Block, shape: Shape) -> Block:
        """The same lanes under another shape."""
        if value.shape == shape:
            return value
        if prod(shape) != value.lanes:
            raise Unsupported(f"reshape of {list(value.shape)} to {list(shape)}")
        return Block(
            value.dtype,
            shape,
            "map",
            fn=lambda b, v: v,
            args=(value,),
            affine=value.affine,
            bound=value.bound,
            conjuncts=value.conjuncts,
            cost=value.cost,
        )

    def arange(self, start: int, stop: int) -> Block:
        """Consecutive int32."""
        block = Block(tl.int32, (stop - start,), "lane", affine=Affine(i64(start), 1))
        block.fn = lambda b, lane: b.pure("i32", f"trunc {lane} to i32")
        return block

    def elementwise(
        self, dtype: DType, fn: Callable[..., Ssa], *values: Data, cost: int = 1
    ) -> Data:
        """``fn(builder, *lane values)``, at once for scalars, lazily for blocks."""
        shape = self.shape_of(*values)
        if not any(isinstance(v, Block) for v in values):
            return Scalar(dtype, fn(self.b, *(v.ssa for v in values if isinstance(v, Scalar))))
        args = tuple(self.broadcast(v, shape) for v in values)
        total = cost + sum(1 if a.keep else a.cost for a in args)
        return Block(dtype, shape, "map", fn=fn, args=args, cost=total)

    # -- operators

    def binary(self, op: str, x: Value, y: Value) -> Value:
        """``x op y`` for every operator and comparison, and for ``max`` and ``min``.

        ``div`` is ``//``; ``truediv`` is ``/``.
        """
        if isinstance(x, Const) and isinstance(y, Const):
            return Const(_PYTHON[op](x.value, y.value))
        if _is_pointer(x) or _is_pointer(y):
            return self._pointer_arithmetic(op, x, y)
        a, c = self.data(x), self.data(y)
        weak_a, weak_c = isinstance(x, Const), isinstance(y, Const)
        dtype = promote(a.dtype, weak_a, c.dtype, weak_c, op in ("truediv", "div", "mod"))
        if op == "truediv" and dtype.is_int():
            dtype = tl.float32
        if op == "div" and dtype.is_floating():
            raise Unsupported("// of floats")
        if op in _BITWISE:
            if not dtype.is_int():
                raise Unsupported(f"{op} of {dtype}")
            dtype = promote_integers(dtype, dtype)
        a, c = self._operand(x, dtype), self._operand(y, dtype)
        if op in _COMPARISONS:
            result = self.elementwise(
                tl.int1, lambda b, u, v: arith.compare(b, op, dtype, u, v), a, c
            )
            if isinstance(result, Block):
                result.bound = indices.bound(self.b, op, a, c)
            return result
        name = "div" if op == "truediv" else op
        result = self.elementwise(
            dtype,
            lambda b, u, v: arith.binary(b, name, dtype, u, v),
            a,
            c,
            cost=_COST.get(op, 1),
        )
        if isinstance(result, Block):
            if str(dtype) in ("int32", "int64"):
                # Of the operands as they are in the result: a broadcast one has other lanes.
                u, v = (self._as_in(result, operand) for operand in (a, c))
                result.affine = indices.affine(self.b, op, dtype, u, v, y, result.lanes)
            elif op == "and" and str(dtype) == "int1":
                parts = [p for p in result.args if isinstance(p, Block)]
                result.conjuncts = tuple(q for p in parts for q in (p.conjuncts or (p,)))
        return result

    def _as_in(self, result: Block, operand: Data) -> Data:
        return operand if isinstance(operand, Scalar) else self.broadcast(operand, result.shape)

    def unary(self, op: str, value: Value) -> Value:
        """``-x``, ``~x``, ``+x``."""
        if isinstance(value, Const):
            return Const(_PYTHON_UNARY[op](value.value))
        x = self.data(value)
        dtype = x.dtype
        if op == "pos":
            return x
        if op == "neg":
            return self.elementwise(dtype, lambda b, v: arith.negate(b, dtype, v), x)
        if not dtype.is_int():
            raise Unsupported(f"~ of {dtype}")
        return self.elementwise(dtype, arith.invert, x)

    def logical(self, op: str, x: Value, y: Value) -> Value:
        """``and`` and ``or`` of tensors: both sides are evaluated."""
        return self.binary(op, self.truth(x), self.truth(y))

    def negation(self, value: Value) -> Value:
        """``not x``."""
        if isinstance(value, Const):
            return Const(not value.value)
        return self.unary("invert", self.truth(value))

    def where(self, condition: Value, x: Value, y: Value) -> Value:
        """``tl.where``."""
        if isinstance(condition, Const):
            condition = Scalar(tl.int1, arith.literal(tl.int1, bool(condition.value)))
        if _is_pointer(x) or _is_pointer(y):
            raise Unsupported("tl.where of pointers")
        a, c = self.data(x), self.data(y)
        dtype = promote(a.dtype, isinstance(x, Const), c.dtype, isinstance(y, Const))
        a, c = self._operand(x, dtype), self._operand(y, dtype)
        return self.elementwise(dtype, arith.select, self.truth(condition), a, c)

    # -- pointers and indices

    def _pointer_arithmetic(self, op: str, x: Value, y: Value) -> Value:
        if op in _COMPARISONS and isinstance(x, Scalar):
            return self.binary(op, self.cast(x, tl.int64), self.cast(y, tl.int64))
        if op == "add" and _is_pointer(y):
            x, y = y, x
        if op == "sub":
            y = self.unary("neg", y)
        elif op != "add" or _is_pointer(y):
            raise Unsupported(f"{op} of pointers")
        return self.advance(x, y)

    def advance(self, pointer: Value, offset: Value) -> Value:
        """``pointer + offset`` in elements."""
        step = self.cast(self.data(offset), tl.int64)
        if isinstance(pointer, Scalar):
            element, base = pointer.dtype.element_ty, pointer.ssa
            if isinstance(step, Scalar):
                return Scalar(pointer.dtype, self._moved(base, element, step.ssa))
            return Pointers(element, base, step)
        assert isinstance(pointer, Pointers)
        if isinstance(step, Scalar):
            moved = self._moved(pointer.base, pointer.element, step.ssa)
            return Pointers(pointer.element, moved, pointer.offset)
        total = self.binary("add", pointer.offset, step)
        assert isinstance(total, Block)
        return Pointers(pointer.element, pointer.base, total)

    def _moved(self, base: Ssa, element: DType, step: Ssa) -> Ssa:
        if size(element) != 1:
            step = self.b.pure("i64", f"mul {step}, {size(element)}")
        return self.b.pure("i64", f"add {base}, {step.ref}")


def _is_pointer(value: Value) -> bool:
    return isinstance(value, Pointers) or (isinstance(value, Scalar) and value.dtype.is_ptr())
