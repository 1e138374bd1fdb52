"""Reading constants out of the arguments of a builtin.

Rule: what must be constant in Triton must be constant here; anything else is refused, never
guessed.
"""

from typing import Any

from vllm_av.cpu.ops import Unsupported
from vllm_av.cpu.values import Const, Group, Shape, Value, describe


def absent(value: Value) -> bool:
    """Whether the argument was not given, or is None."""
    return isinstance(value, Const) and value.value is None


def present(mask: Value) -> Value:
    """A mask that is known to be true is no mask."""
    return Const(None) if isinstance(mask, Const) and mask.value is True else mask


def python_object(value: Value) -> Any:
    """The Python object of a constant."""
    if not isinstance(value, Const):
        raise Unsupported(f"{describe(value)} where a constant is needed")
    return value.value


def number(value: Value) -> int:
    """A constant integer."""
    found = python_object(value)
    if not isinstance(found, int):
        raise Unsupported(f"{found!r} where a constant integer is needed")
    return found


def shape_from(value: Value) -> Shape:
    """A shape: a constant integer, or several."""
    if isinstance(value, Group):
        return tuple(number(v) for v in value.items)
    found = python_object(value)
    if isinstance(found, int):
        return (found,)
    return tuple(int(getattr(v, "value", v)) for v in found)
