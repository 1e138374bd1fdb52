"""Loops over the lanes of blocks: when they are emitted, and what may share one.

Rule: Triton's statement order. All lanes of a statement are done before the next statement begins,
wherever the difference could be seen. Loads, stores and reductions are collected and run in ONE
loop, until something could tell: an access that may overlap a pending one of which either writes
(unless each lane touches its own same place), a scalar access, a reduction's result, control flow.

A mask ``index < limit`` splits the loop: lanes below the limit run without the mask (so loads are
contiguous and the loop vectorises), the rest with the mask known to be false. For that, and for
addresses, an index ``base + coefficient * lane`` is taken not to overflow 32 bits within the
block.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from vllm_av.cpu import arith
from vllm_av.cpu.dtypes import DType, held, size, stored
from vllm_av.cpu.indices import affine_at, splitting
from vllm_av.cpu.ir import FALSE, TRUE, Builder, Ssa, i64
from vllm_av.cpu.values import Access, Block, Buffer, Pointers

# Below this many lanes, a second loop costs more than the masks do.
_SPLIT_LANES = 64
# A named expression of this cost or more is computed once and kept.
KEEP_COST = 6
# All buffers of one launch together; they live on the stack.
_STACK_BYTES = 2 << 20

_Memo = dict[tuple[int, str], Ssa]
# The bound of a comparison, and what the comparison is in this loop.
_Fact = tuple[str, Ssa]


@dataclass(slots=True)
class _Lane:
    """Where a loop's body stands: the lane, what is known, what was computed.

    Under an index the lane is another than the loop's own: ``own`` is false, nothing is known
    of it, and nothing may be kept, for not every lane need come by.
    """

    index: Ssa
    fact: "_Fact | None" = None
    memo: _Memo = field(default_factory=dict)
    own: bool = True


class TooLarge(Exception):
    """The kernel's blocks do not fit on the stack."""


_Step = Callable[[_Lane], None]


class Lanes:
    """The pending loop, and the buffers."""

    def __init__(self, b: Builder) -> None:
        self._b = b
        self._steps: list[_Step] = []
        self._masks: list[Block] = []
        self._accesses: list[Access] = []
        self._count = 0
        self._bytes = 0
        # Blocks whose buffer holds their values here (by identity; kept alive by the value).
        self._ready: dict[int, Block] = {}
        self._touched: dict[int, Block] = {}

    # -- what a statement asks for

    def load(self, pointers: Pointers, mask: Block | None, other: Block | None) -> Block:
        """Read now; lanes without the mask get ``other``, or 0."""
        element = pointers.element
        result = Block(element, pointers.shape, "memory", cost=1, keep=True)
        self._access(Access(False, element, pointers.base, pointers.offset), result.lanes)

        def step(lane: _Lane) -> None:
            condition = TRUE if mask is None else self.value(mask, lane)
            default = arith.literal(element, 0) if other is None else self.value(other, lane)
            address = self._address(pointers, lane)
            x = self._either(condition, lambda: arith.load(self._b, element, address), default)
            self._keep(result, lane, x)

        self._add(step, mask)
        return result

    def store(self, pointers: Pointers, value: Block, mask: Block | None) -> None:
        """Write in program order."""
        element = pointers.element
        self._access(Access(True, element, pointers.base, pointers.offset), pointers.offset.lanes)

        def step(lane: _Lane) -> None:
            condition = TRUE if mask is None else self.value(mask, lane)
            x, address = self.value(value, lane), self._address(pointers, lane)
            self._when(condition, lambda: arith.store(self._b, element, address, x))

        self._add(step, mask)

    def atomic(self, op: str, pointers: Pointers, value: Block, mask: Block | None) -> Block:
        """Read, change and write, lane after lane; the result is what was there before."""
        self.flush()
        element, result = pointers.element, Block(value.dtype, value.shape, "memory", keep=True)

        def step(lane: _Lane) -> None:
            condition = TRUE if mask is None else self.value(mask, lane)
            x, address = self.value(value, lane), self._address(pointers, lane)
            text = f"atomicrmw {op} {address}, {x} monotonic"
            zero = arith.literal(element, 0)
            before = self._either(condition, lambda: self._b.effect(x.ty, text), zero)
            self._keep(result, lane, before)

        self._count = value.lanes
        self._add(step, None)
        self.flush()
        return result

    def reduce(self, block: Block, update: Callable[[Ssa, Ssa], None]) -> None:
        """Run ``update(lane, value)`` for every lane, in the pending loop, which then ends."""
        self._fit(block.lanes)

        def step(lane: _Lane) -> None:
            update(lane.index, self.value(block, lane))

        self._add(step, None)
        self.flush()

    def store_to(self, buffers: list[tuple[Buffer, Block]]) -> None:
        """Fill buffers from blocks of one size in one loop, reads of a lane before its writes."""
        self._fit(buffers[0][1].lanes)

        def step(lane: _Lane) -> None:
            values = [self.value(block, lane) for _, block in buffers]
            for (buffer, _), x in zip(buffers, values, strict=True):
                arith.store(self._b, buffer.dtype, self._element(buffer, lane.index), x)

        self._add(step, None)
        self.flush()

    def settle(self, block: Block) -> Block:
        """The same block, fit to be read at any lane; kept if computing it again costs
        something.
        """
        if block.kind in ("splat", "lane") or block.affine is not None:
            return block
        self.flush()
        if block.cost >= KEEP_COST and id(block) not in self._ready:
            block.keep = True
            self.reduce(block, lambda *_: None)
        return block

    def buffer(self, dtype: DType, lanes: int) -> Buffer:
        """Room for a block."""
        self._bytes += lanes * size(dtype)
        if self._bytes > _STACK_BYTES:
            raise TooLarge
        return Buffer(self._b.alloca(stored(dtype), lanes), dtype)

    def filled(self, buffer: Buffer, block: Block) -> Block:
        """A block that reads a buffer filled by :meth:`store_to`."""
        result = Block(block.dtype, block.shape, "memory", buffer=buffer)
        self._ready[id(result)] = result
        return result

    def put(self, buffer: Buffer, lane: Ssa, x: Ssa) -> None:
        """Write one lane's value, inside :meth:`reduce`."""
        arith.store(self._b, buffer.dtype, self._element(buffer, lane), x)

    def mark(self, block: Block) -> None:
        """This block's buffer is filled from here on."""
        self._ready[id(block)] = block

    @contextmanager
    def region(self) -> Iterator[None]:
        """Code that may not run: what it computes is not known to be there afterwards."""
        self.flush()
        before = dict(self._ready)
        try:
            yield
            self.flush()
        finally:
            self._ready = before

    @contextmanager
    def resumed(self, ready: dict[int, Block]) -> Iterator[None]:
        """Back at the end of a region left before."""
        before, self._ready = self._ready, ready
        try:
            yield
            self.flush()
        finally:
            self._ready = before

    @property
    def ready(self) -> dict[int, Block]:
        """What is in memory here, for :meth:`resumed`."""
        return dict(self._ready)

    def before_scalar_access(self, writes: bool) -> None:
        """A scalar load must see pending stores; a scalar store comes after everything pending."""
        if any(writes or access.writes for access in self._accesses):
            self.flush()

    # -- the pending loop

    def _access(self, access: Access, lanes: int) -> None:
        self._fit(lanes)
        for earlier in self._accesses:
            if (earlier.writes or access.writes) and not earlier.same_place(access):
                self.flush()
                self._count = lanes
                break
        self._accesses.append(access)

    def _fit(self, lanes: int) -> None:
        if self._count != lanes:
            self.flush()
            self._count = lanes

    def _add(self, step: _Step, mask: Block | None) -> None:
        self._steps.append(step)
        if mask is not None:
            self._masks.append(mask)

    def flush(self) -> None:
        """Emit the pending loop."""
        if not self._steps:
            return
        steps, masks, count = self._steps, self._masks, self._count
        self._steps, self._masks, self._accesses, self._count = [], [], [], 0
        self._touched = {}
        # Blocks computed inside the loop are ready only once it ends.
        split = splitting(masks) if count >= _SPLIT_LANES else None
        if split is None:
            self._loop(i64(0), i64(count), steps, None)
        else:
            assert split.bound is not None
            low = self._b.call("i64", "llvm.smax.i64", split.bound, i64(0))
            limit = self._b.call("i64", "llvm.smin.i64", low, i64(count))
            self._loop(i64(0), limit, steps, (split.bound.ref, TRUE))
            self._loop(limit, i64(count), steps, (split.bound.ref, FALSE))
        self._ready.update(self._touched)

    def _loop(self, start: Ssa, stop: Ssa, steps: list[_Step], fact: "_Fact | None") -> None:
        b = self._b
        head, body, done = b.fresh("lane"), b.fresh("body"), b.fresh("done")
        before = b.label
        b.branch(head)
        b.start(head)
        phi = b.phi("i64")
        b.branch_if(b.effect("i1", f"icmp slt {phi.value}, {stop.ref}"), body, done)
        b.start(body)
        with b.scope():
            lane = _Lane(phi.value, fact)
            for step in steps:
                step(lane)
            following = b.effect("i64", f"add nuw nsw {phi.value}, 1")
            b.fill(phi, (start, before), (following, b.label))
            b.branch(head)
        b.start(done)

    # -- evaluating one lane

    def value(self, block: Block, lane: _Lane) -> Ssa:
        """The block's value at the lane."""
        if lane.fact and block.bound is not None and block.bound.ref == lane.fact[0]:
            return lane.fact[1]
        key = (id(block), lane.index.ref)
        found = lane.memo.get(key)
        if found is None:
            if id(block) in self._ready:
                assert block.buffer is not None
                found = arith.load(self._b, block.dtype, self._element(block.buffer, lane.index))
            else:
                found = self._compute(block, lane)
                if block.keep and lane.own:
                    self._keep(block, lane, found)
            lane.memo[key] = found
        return found

    def _compute(self, block: Block, lane: _Lane) -> Ssa:
        b = self._b
        if block.affine is not None:
            exact = affine_at(b, block.affine, lane.index)
            ty = held(block.dtype)
            return exact if ty == "i64" else b.pure(ty, f"trunc {exact} to {ty}")
        if block.kind == "splat":
            assert isinstance(block.args[0], Ssa)
            return block.args[0]
        assert block.fn is not None, "a load was used before its loop"
        if block.kind == "lane":
            return block.fn(b, lane.index)
        nodes = [a for a in block.args if isinstance(a, Block)]
        if block.kind == "index":
            return self.value(nodes[0], _Lane(block.fn(b, lane.index), None, lane.memo, False))
        return block.fn(b, *(self.value(a, lane) for a in nodes))

    def _keep(self, block: Block, lane: _Lane, x: Ssa) -> None:
        lane.memo[(id(block), lane.index.ref)] = x
        if block.buffer is None:
            block.buffer = self.buffer(block.dtype, block.lanes)
        arith.store(self._b, block.dtype, self._element(block.buffer, lane.index), x)
        self._touched[id(block)] = block

    def _element(self, buffer: Buffer, lane: Ssa) -> Ssa:
        text = f"getelementptr {stored(buffer.dtype)}, {buffer.pointer}, {lane}"
        return self._b.pure("ptr", text)

    def _address(self, pointers: Pointers, lane: _Lane) -> Ssa:
        b, offset = self._b, pointers.offset
        base = b.pure("ptr", f"inttoptr {pointers.base} to ptr")
        if offset.affine is not None:
            index = affine_at(b, offset.affine, lane.index)
        else:
            index = self.value(offset, lane)
        return b.pure("ptr", f"getelementptr {stored(pointers.element)}, {base}, {index}")

    def _either(self, condition: Ssa, then: Callable[[], Ssa], other: Ssa) -> Ssa:
        if condition in (TRUE, FALSE):
            return then() if condition == TRUE else other
        b = self._b
        before, yes, done = b.label, b.fresh("yes"), b.fresh("done")
        b.branch_if(condition, yes, done)
        b.start(yes)
        with b.scope():
            x = then()
            end = b.label
            b.branch(done)
        b.start(done)
        return b.merge(x.ty, (other, before), (x, end))

    def _when(self, condition: Ssa, then: Callable[[], None]) -> None:
        if condition == FALSE:
            return
        if condition == TRUE:
            then()
            return
        b = self._b
        yes, done = b.fresh("yes"), b.fresh("done")
        b.branch_if(condition, yes, done)
        b.start(yes)
        with b.scope():
            then()
            b.branch(done)
        b.start(done)
