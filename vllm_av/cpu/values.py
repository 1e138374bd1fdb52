"""What an expression of a kernel can be while it is being compiled.

    ======== =========================================================================
    Const    a Python object known now: a dtype, None, a function; a number is *weak*
    Scalar   one value in a register
    Block    a function from the lane (the flat index in the block) to a value
    Pointers a block of addresses: one base address, a block of offsets in elements
    Group    a tuple of these
    ======== =========================================================================

Rule: a Block is a pure expression, evaluated lazily. Memory is read at the statement that says so
(the result is then a Block that remembers it), so evaluating a Block late, or twice, gives the
same values.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

from vllm_av.cpu.dtypes import DType
from vllm_av.cpu.ir import Ssa

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Const:
    """A Python object."""

    value: Any


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value of one element."""

    dtype: DType
    ssa: Ssa


class Affine(NamedTuple):
    """An integer block that is ``base + coefficient * lane`` in exact (64-bit) arithmetic."""

    base: Ssa
    coefficient: int


class Buffer(NamedTuple):
    """A block's values in memory, in their stored form."""

    pointer: Ssa
    dtype: DType


@dataclass(slots=True, eq=False)
class Block:
    """A node of a lazy expression over lanes.

    Attributes:
        kind: what a lane's value is.
            ``splat``: one for all, ``args[0]`` (an Ssa).
            ``lane``: ``fn(b, lane)``.
            ``map``: ``fn(b, *values)`` of the blocks ``args`` at the same lane.
            ``index``: that of ``args[0]`` at the lane ``fn(b, lane)``.
            ``memory``: in ``buffer``, filled by a load or a merge.
        affine: what is known of an index, so that addresses are contiguous for LLVM.
        bound: for a comparison ``index < limit`` with a coefficient of 1: the number of lanes,
            from the first, for which it holds, as an i64 that may be negative or too large.
        conjuncts: for an ``and`` of truths, its parts.
        cost: instructions per lane, roughly; a costly block that has a name is kept in a buffer.
        buffer: where its values are, once they have been computed.
        keep: whether to store it to its buffer when it is first computed.
    """

    dtype: DType
    shape: Shape
    kind: str
    fn: Callable[..., Ssa] | None = None
    args: "tuple[Block | Ssa, ...]" = ()
    affine: Affine | None = None
    bound: Ssa | None = None
    conjuncts: "tuple[Block, ...]" = ()
    cost: int = 1
    buffer: Buffer | None = None
    keep: bool = False

    @property
    def lanes(self) -> int:
        """Elements in the block."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Pointers:
    """A block of pointers to elements of ``element``."""

    element: DType
    base: Ssa
    offset: Block

    @property
    def shape(self) -> Shape:
        return self.offset.shape


@dataclass(frozen=True, slots=True)
class Group:
    """A tuple."""

    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """A name that has no one value here; using it is the mistake, not having it."""

    why: str


Data = Scalar | Block
Value = Const | Scalar | Block | Pointers | Group | Unknown
Env = dict[str, Value]


def splat(value: Scalar, shape: Shape) -> Block:
    """One value in every lane."""
    return Block(value.dtype, shape, "splat", args=(value.ssa,), cost=0)


@dataclass(slots=True)
class Access:
    """One pending access to memory by all lanes, for the hazard rules."""

    writes: bool
    element: DType
    base: Ssa
    offset: Block = field(repr=False)

    def same_place(self, other: "Access") -> bool:
        """Whether lane i touches exactly what lane i of the other touches, and no lane
        another's.
        """
        if self.element != other.element or self.base != other.base:
            return False
        mine, its = self.offset.affine, other.offset.affine
        return mine is not None and mine == its and mine.coefficient != 0


def describe(value: Value) -> str:
    """For messages."""
    match value:
        case Const(value=v):
            return f"constant {v!r}"
        case Scalar(dtype=d):
            return str(d)
        case Block(dtype=d, shape=s):
            return f"{d}{list(s)}"
        case Pointers(element=e):
            return f"pointers to {e}"
        case Group(items=items):
            return f"tuple of {len(items)}"
    return "unknown"
