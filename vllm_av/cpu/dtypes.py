"""Element types: how Triton promotes them, and how LLVM holds and stores them.

Rule: Triton's promotion rules are called, never copied, so that a new Triton brings its own.
Python numbers are *weak* (they follow the tensor operand), everything else is a tensor, a scalar
being one of no dimension.

A value is *held* in a register in one form and *stored* in memory in another:

    ======== ====== ====== =======================================================
    dtype    held   stored
    ======== ====== ====== =======================================================
    int1     i1     i8     any non-zero byte is true
    intN     iN     iN
    fp16     float  half   every operation rounds its result
    bf16     float  i16    the same; rounded to nearest even, NaN stays NaN
    fp32     float  float
    fp64     double double
    pointer  i64    i64    an address
    ======== ====== ====== =======================================================
"""

import struct
from typing import Any

import triton.language as tl
from triton.language.semantic import TritonSemantic

# Triton's dtype objects have no type stubs.
DType = Any

_RULES: Any = TritonSemantic(None)

_HELD = {"int1": "i1", "fp16": "float", "bf16": "float", "fp32": "float", "fp64": "double"}
_STORED = {"int1": "i8", "fp16": "half", "bf16": "i16", "fp32": "float", "fp64": "double"}
for _bits in (8, 16, 32, 64):
    for _sign in ("int", "uint"):
        _HELD[f"{_sign}{_bits}"] = _STORED[f"{_sign}{_bits}"] = f"i{_bits}"

_TORCH = {
    "bool": "int1",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
    **{name: name for name in _HELD if "int" in name and name != "int1"},
}
_BY_NAME = {str(d): d for d in (getattr(tl, n) for n in dir(tl)) if isinstance(d, tl.dtype)}


def known(dtype: DType) -> bool:
    """Whether values of this type can be compiled (8-bit floats cannot)."""
    return dtype.is_ptr() or str(dtype) in _HELD


def held(dtype: DType) -> str:
    """The LLVM type of a value in a register."""
    return "i64" if dtype.is_ptr() else _HELD[str(dtype)]


def stored(dtype: DType) -> str:
    """The LLVM type of a value in memory."""
    return "i64" if dtype.is_ptr() else _STORED[str(dtype)]


def size(dtype: DType) -> int:
    """Bytes of one element in memory."""
    return 8 if dtype.is_ptr() else max(8, int(dtype.primitive_bitwidth)) // 8


def from_torch(name: str) -> DType | None:
    """Triton's type for the torch dtype of that name, or None where there is none."""
    found = _TORCH.get(name.removeprefix("torch."))
    return None if found is None else _BY_NAME[found]


def of_python(value: bool | float) -> DType:
    """The type that a Python number becomes when it turns into a tensor."""
    return _RULES.to_tensor_type(value)


def promote(a: DType, a_weak: bool, b: DType, b_weak: bool, div_or_mod: bool = False) -> DType:
    """The type in which an operation on ``a`` and ``b`` is computed.

    Raises:
        TypeError: Triton forbids the pair.
    """
    return _RULES.computation_type_impl(a, a_weak, b, b_weak, div_or_mod)


def promote_integers(a: DType, b: DType) -> DType:
    """C's usual arithmetic conversions, as Triton applies them to // and the bit operators."""
    return _RULES.integer_promote_impl(a, b)


def constant(dtype: DType, value: bool | float) -> str:
    """LLVM's text of a constant in its held form; integers wrap, floats round to their type."""
    kind = held(dtype)
    if kind == "i1":
        return "true" if value else "false"
    if kind.startswith("i"):
        bits = int(kind[1:])
        wrapped = int(value) & ((1 << bits) - 1)
        return str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)
    number = float(value)
    if kind == "float":
        number = _rounded(number, *_ROUNDED[str(dtype)])
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


# How struct packs it, and the bits of a float32 that it does not have.
_ROUNDED = {"fp16": ("<e", 0), "bf16": ("<f", 16), "fp32": ("<f", 0)}


def _rounded(number: float, form: str, missing: int) -> float:
    """To the nearest, ties to even."""
    try:
        packed = struct.pack(form, number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
    if missing and number == number:
        bits = struct.unpack("<I", packed)[0]
        bits += (1 << missing - 1) - 1 + (bits >> missing & 1)
        packed = struct.pack("<I", bits >> missing << missing)
    return float(struct.unpack(form, packed)[0])
