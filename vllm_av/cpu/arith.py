"""Arithmetic on values of one type: what each operator means, as LLVM instructions.

Rule: defined for every input, and equal to Triton's interpreter wherever that is defined. Integers
wrap; ``//`` and ``%`` truncate toward zero as C does; a division by zero gives 0 and never traps;
a shift by the width or more gives 0 (or the sign); a float turned into an integer saturates. No
operation is contracted or reassociated.
"""

from vllm_av.cpu.dtypes import DType, constant, held, size, stored
from vllm_av.cpu.ir import FALSE, TRUE, Builder, Ssa

_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "mod": "frem"}
_INT_OPS = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_FLOAT_TESTS = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_INT_TESTS = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}


def literal(dtype: DType, value: bool | float) -> Ssa:
    """A Python number as a value of that type."""
    return Ssa(held(dtype), constant(dtype, value))


def binary(b: Builder, op: str, dtype: DType, x: Ssa, y: Ssa) -> Ssa:
    """``x op y``, both of type ``dtype``, the result too."""
    ty = x.ty
    if op in ("max", "min"):
        return _extreme(b, op, dtype, x, y)
    if dtype.is_floating():
        return narrow(b, dtype, b.pure(ty, f"{_FLOAT_OPS[op]} {x}, {y.ref}"))
    if ty == "i1" and op in ("and", "or"):
        return logical(b, op, x, y)
    if op in _INT_OPS:
        return b.pure(ty, f"{_INT_OPS[op]} {x}, {y.ref}")
    if op in ("div", "mod"):
        return _divide(b, op, dtype, x, y)
    if op in ("shl", "shr"):
        return _shift(b, op, dtype, x, y)
    raise KeyError(op)


def logical(b: Builder, op: str, x: Ssa, y: Ssa) -> Ssa:
    """``and`` or ``or`` of truths, folded where one is known."""
    neutral, absorbing = (TRUE, FALSE) if op == "and" else (FALSE, TRUE)
    if absorbing in (x, y):
        return absorbing
    if x == neutral or y == neutral:
        return y if x == neutral else x
    return b.pure("i1", f"{op} {x}, {y.ref}")


def _extreme(b: Builder, op: str, dtype: DType, x: Ssa, y: Ssa) -> Ssa:
    if dtype.is_floating():
        bits = "f64" if x.ty == "double" else "f32"
        return b.call(x.ty, f"llvm.{op}num.{bits}", x, y)
    sign = "s" if dtype.is_int_signed() else "u"
    return b.call(x.ty, f"llvm.{sign}{op}.{x.ty}", x, y)


def _divide(b: Builder, op: str, dtype: DType, x: Ssa, y: Ssa) -> Ssa:
    ty, signed = x.ty, dtype.is_int_signed()
    name = {("div", True): "sdiv", ("div", False): "udiv", ("mod", True): "srem"}.get(
        (op, signed), "urem"
    )
    if y.ref.isdigit() and int(y.ref) > 0:
        return b.pure(ty, f"{name} {x}, {y.ref}")
    zero = b.pure("i1", f"icmp eq {y}, 0")
    unsafe = zero
    if signed:  # the smallest integer by -1 traps
        unsafe = logical(b, "or", zero, b.pure("i1", f"icmp eq {y}, -1"))
    divisor = select(b, unsafe, Ssa(ty, "1"), y)
    result = b.pure(ty, f"{name} {x}, {divisor.ref}")
    if signed and op == "div":
        minus_one = b.pure("i1", f"icmp eq {y}, -1")
        result = select(b, minus_one, b.pure(ty, f"sub {ty} 0, {x.ref}"), result)
    return select(b, zero, Ssa(ty, "0"), result)


def _shift(b: Builder, op: str, dtype: DType, x: Ssa, y: Ssa) -> Ssa:
    ty, bits = x.ty, int(x.ty[1:])
    arithmetic = op == "shr" and dtype.is_int_signed()
    name = "shl" if op == "shl" else "ashr" if arithmetic else "lshr"
    if y.ref.isdigit() and int(y.ref) < bits:
        return b.pure(ty, f"{name} {x}, {y.ref}")
    inside = b.pure("i1", f"icmp ult {y}, {bits}")
    if arithmetic:
        return b.pure(ty, f"ashr {x}, {select(b, inside, y, Ssa(ty, str(bits - 1))).ref}")
    shifted = b.pure(ty, f"{name} {x}, {select(b, inside, y, Ssa(ty, '0')).ref}")
    return select(b, inside, shifted, Ssa(ty, "0"))


def compare(b: Builder, op: str, dtype: DType, x: Ssa, y: Ssa) -> Ssa:
    """A truth; comparisons with NaN are false, except ``!=``."""
    if dtype.is_floating():
        return b.pure("i1", f"fcmp {_FLOAT_TESTS[op]} {x}, {y.ref}")
    if op in _INT_TESTS:
        op = ("s" if dtype.is_int() and dtype.is_int_signed() else "u") + _INT_TESTS[op]
    return b.pure("i1", f"icmp {op} {x}, {y.ref}")


def select(b: Builder, condition: Ssa, x: Ssa, y: Ssa) -> Ssa:
    """``x`` where true, else ``y``."""
    if condition == TRUE or x == y:
        return x
    if condition == FALSE:
        return y
    return b.pure(x.ty, f"select {condition}, {x}, {y}")


def negate(b: Builder, dtype: DType, x: Ssa) -> Ssa:
    """``-x``."""
    if dtype.is_floating():
        return b.pure(x.ty, f"fneg {x}")
    return b.pure(x.ty, f"sub {x.ty} 0, {x.ref}")


def invert(b: Builder, x: Ssa) -> Ssa:
    """``~x``: of a truth, its negation."""
    if x in (TRUE, FALSE):
        return FALSE if x == TRUE else TRUE
    return b.pure(x.ty, f"xor {x}, {'true' if x.ty == 'i1' else '-1'}")


def multiply_high(b: Builder, x: Ssa, y: Ssa) -> Ssa:
    """The upper half of the unsigned product."""
    bits = int(x.ty[1:])
    wide = f"i{2 * bits}"
    product = b.pure(
        wide,
        f"mul {b.pure(wide, f'zext {x} to {wide}')}, {b.pure(wide, f'zext {y} to {wide}').ref}",
    )
    high = b.pure(wide, f"lshr {product}, {bits}")
    return b.pure(x.ty, f"trunc {high} to {x.ty}")


def truth(b: Builder, dtype: DType, x: Ssa) -> Ssa:
    """Whether ``x`` is not zero."""
    if x.ty == "i1":
        return x
    if dtype.is_floating():
        return b.pure("i1", f"fcmp une {x}, {constant(dtype, 0)}")
    return b.pure("i1", f"icmp ne {x}, 0")


def cast(b: Builder, source: DType, target: DType, x: Ssa) -> Ssa:
    """``x`` converted from one type to another."""
    if source == target:
        return x
    if not target.is_ptr() and target.is_int() and target.is_bool():
        return truth(b, source, x)
    from_float = not source.is_ptr() and source.is_floating()
    to_float = not target.is_ptr() and target.is_floating()
    ty = held(target)
    if from_float and to_float:
        if ty != x.ty:
            x = b.pure(ty, f"{'fpext' if ty == 'double' else 'fptrunc'} {x} to {ty}")
        return narrow(b, target, x)
    if from_float:
        sign = "s" if target.is_int_signed() else "u"
        return b.call(ty, f"llvm.fpto{sign}i.sat.{ty}.{_bits(x.ty)}", x)
    signed = not source.is_ptr() and source.is_int_signed()
    if to_float:
        return narrow(b, target, b.pure(ty, f"{'si' if signed else 'ui'}tofp {x} to {ty}"))
    if ty == x.ty:
        return x
    if int(ty[1:]) < int(x.ty[1:]):
        return b.pure(ty, f"trunc {x} to {ty}")
    return b.pure(ty, f"{'sext' if signed else 'zext'} {x} to {ty}")


def bitcast(b: Builder, source: DType, target: DType, x: Ssa) -> Ssa:
    """The bits of ``x`` read as another type of the same size.

    Raises:
        ValueError: the sizes differ.
    """
    if size(source) != size(target):
        raise ValueError(f"bitcast of {source} to {target}")
    bits = to_bits(b, source, x)
    return from_bits(b, target, bits)


def _bits(ty: str) -> str:
    return "f64" if ty == "double" else "f32"


def narrow(b: Builder, dtype: DType, x: Ssa) -> Ssa:
    """Round a held value to what its type can represent."""
    if str(dtype) in ("fp16", "bf16"):
        return from_bits(b, dtype, to_bits(b, dtype, x))
    return x


def to_bits(b: Builder, dtype: DType, x: Ssa) -> Ssa:
    """The stored form, as an integer (a truth as a byte)."""
    name = str(dtype)
    if name == "bf16":
        return b.helper("i16", "av_to_bf16", x)
    if name == "fp16":
        return b.pure("i16", f"bitcast {b.pure('half', f'fptrunc {x} to half')} to i16")
    if x.ty in ("float", "double"):
        ty = "i64" if x.ty == "double" else "i32"
        return b.pure(ty, f"bitcast {x} to {ty}")
    return b.pure("i8", f"zext {x} to i8") if x.ty == "i1" else x


def from_bits(b: Builder, dtype: DType, bits: Ssa) -> Ssa:
    """The held form of stored bits."""
    name = str(dtype)
    if name == "bf16":
        wide = b.pure("i32", f"zext {bits} to i32")
        return b.pure("float", f"bitcast {b.pure('i32', f'shl {wide}, 16')} to float")
    if name == "fp16":
        return b.pure("float", f"fpext {b.pure('half', f'bitcast {bits} to half')} to float")
    ty = held(dtype)
    if ty in ("float", "double"):
        return b.pure(ty, f"bitcast {bits} to {ty}")
    return b.pure("i1", f"icmp ne {bits}, 0") if ty == "i1" else bits


def load(b: Builder, dtype: DType, pointer: Ssa) -> Ssa:
    """The element at ``pointer`` (an LLVM ptr) in its held form."""
    ty = stored(dtype)
    found = b.effect(ty, f"load {ty}, {pointer}, align {size(dtype)}")
    if ty == held(dtype):
        return found
    if ty == "half":
        return b.pure("float", f"fpext {found} to float")
    return from_bits(b, dtype, found)


def store(b: Builder, dtype: DType, pointer: Ssa, x: Ssa) -> None:
    """Write a held value in its stored form."""
    ty = stored(dtype)
    if ty == "half":
        x = b.pure("half", f"fptrunc {x} to half")
    elif ty != x.ty:
        x = to_bits(b, dtype, x)
    b.emit(f"store {x}, {pointer}, align {size(dtype)}")
