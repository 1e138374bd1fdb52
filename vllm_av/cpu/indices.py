"""What is known of a block of integers without computing it: that it is an index.

Rule: what is said holds for the very block that is asked about, lane by lane of ITS shape. An
operand that is broadcast has other lanes, so callers give operands as they are after broadcasting.

An index is ``base + coefficient * lane`` without an overflow within the block. The base is the
value of lane 0 as its type has it, so a sum that wraps in 32 bits on the way there is right.
"""

import triton.language as tl

from vllm_av.cpu import arith
from vllm_av.cpu.dtypes import DType
from vllm_av.cpu.ir import Builder, Ssa, i64
from vllm_av.cpu.values import Affine, Block, Const, Data, Scalar, Value


def exact(b: Builder, value: Scalar) -> Ssa:
    """A scalar's value as an i64."""
    return arith.cast(b, value.dtype, tl.int64, value.ssa)


def affine(
    b: Builder, op: str, dtype: DType, a: Data, c: Data, y: Value, lanes: int
) -> Affine | None:
    """What is known of the index ``a op c`` of type ``dtype`` (int32 or int64).

    Args:
        a, c: the operands; blocks have the shape of the result.
        y: the second operand as the kernel has it; a number may be a factor.
        lanes: of the result.
    """
    fa = a.affine if isinstance(a, Block) else Affine(exact(b, a), 0)
    fc = c.affine if isinstance(c, Block) else Affine(exact(b, c), 0)
    if fa is None or fc is None:
        return None
    if op in ("add", "sub"):
        sign = 1 if op == "add" else -1
        coefficient = fa.coefficient + sign * fc.coefficient
        if fc.base.ref == "0":
            base = fa.base
        elif fa.base.ref == "0" and op == "add":
            base = fc.base
        else:
            base = _wrapped(b, dtype, b.pure("i64", f"{op} {fa.base}, {fc.base.ref}"))
    elif op == "mul" and isinstance(y, Const) and isinstance(y.value, int):
        base, coefficient = fa.base, fa.coefficient * y.value
        if base.ref != "0":
            base = _wrapped(b, dtype, b.pure("i64", f"mul {base}, {y.value}"))
    else:
        return None
    if abs(coefficient) * lanes >> (dtype.int_bitwidth - 1):
        return None  # it does overflow
    return Affine(base, coefficient)


def _wrapped(b: Builder, dtype: DType, base: Ssa) -> Ssa:
    if dtype.int_bitwidth == 64:
        return base
    return b.pure("i64", f"sext {b.pure('i32', f'trunc {base} to i32')} to i64")


def bound(b: Builder, op: str, a: Data, c: Data) -> Ssa | None:
    """For ``index < limit`` or ``index <= limit``: how many lanes it holds for."""
    if op not in ("lt", "le") or not isinstance(a, Block) or not isinstance(c, Scalar):
        return None
    if a.affine is None or a.affine.coefficient != 1 or not c.dtype.is_int_signed():
        return None
    # Saturating: a limit at the end of 64 bits stays there, and no block has so many lanes.
    limit = exact(b, c)
    if op == "le":
        limit = b.call("i64", "llvm.sadd.sat.i64", limit, i64(1))
    if a.affine.base.ref == "0":
        return limit
    return b.call("i64", "llvm.ssub.sat.i64", limit, a.affine.base)


def affine_at(b: Builder, affine: Affine, lane: Ssa) -> Ssa:
    """``base + coefficient * lane`` as an i64."""
    if affine.coefficient == 0:
        return affine.base
    scaled = lane
    if affine.coefficient != 1:
        scaled = b.pure("i64", f"mul nsw {lane}, {affine.coefficient}")
    if affine.base.ref == "0":
        return scaled
    return b.pure("i64", f"add nsw {affine.base}, {scaled.ref}")


def splitting(masks: list[Block]) -> Block | None:
    """The comparison that most masks contain."""
    seen: dict[str, tuple[int, Block]] = {}
    for mask in masks:
        for part in mask.conjuncts or (mask,):
            if part.bound is not None:
                ref = part.bound.ref
                seen[ref] = (seen.get(ref, (0, part))[0] + 1, part)
    return max(seen.values(), key=lambda pair: pair[0])[1] if seen else None
