"""Loops: their blocks, and the names that they carry from round to round.

Rule: a loop carries the names that it assigns and that had a value before it; as in Triton, each
keeps its type. A name that changes its type is lost after the loop, and an error if a round may
read it first.
"""

import ast
from contextlib import ExitStack
from types import TracebackType

from vllm_av.cpu.dtypes import DType, held
from vllm_av.cpu.ir import Phi, Ssa
from vllm_av.cpu.ops import Ops, Unsupported
from vllm_av.cpu.syntax import assigned, exposed, loaded
from vllm_av.cpu.values import Block, Buffer, Env, Pointers, Scalar, Unknown, Value


class Loop:
    """A loop's blocks, and the names that it carries from round to round."""

    def __init__(self, run: Ops, node: ast.For | ast.While, env: Env, live: set[str]) -> None:
        self._run = run
        self._read = loaded([node])
        self.live = self._read | live
        b = run.b
        names = assigned(node.body) & set(env) & self.live
        self._names = sorted(n for n in names if not isinstance(env[n], Unknown))
        self._entry = {n: run.tensor(env[n]) for n in self._names}
        self._buffers: dict[str, Buffer] = {}
        self._phis: dict[str, Phi] = {}
        run.lanes.flush()
        for name, value in self._entry.items():
            if isinstance(value, Block):
                buffer = run.lanes.buffer(value.dtype, value.lanes)
                run.lanes.store_to([(buffer, value)])
                self._buffers[name] = buffer
        self._node = node
        self._labels = [b.fresh(stem) for stem in ("loop", "round", "endloop")]
        self.before = b.label
        b.branch(self._labels[0])
        b.start(self._labels[0])
        self.env = {n: v for n, v in env.items() if n not in assigned(node.body)}
        self._ready = run.lanes.ready

    def head(self) -> None:
        """The phis: what each carried name is at the start of a round."""
        run = self._run
        for name, value in self._entry.items():
            if isinstance(value, Scalar):
                phi = run.b.phi(held(value.dtype))
                self._phis[name] = phi
                self.env[name] = Scalar(value.dtype, phi.value)
            elif isinstance(value, Block):
                carried = Block(value.dtype, value.shape, "memory", buffer=self._buffers[name])
                run.lanes.mark(carried)
                self.env[name] = carried
            elif isinstance(value, Pointers):
                phi = run.b.phi("i64")
                self._phis[name] = phi
                self.env[name] = Pointers(value.element, phi.value, value.offset)
            else:
                self.env[name] = Unknown("which a loop cannot carry")
        self._start = dict(self.env)

    def body(self, condition: Ssa) -> "Round":
        """Enter a round where the condition holds."""
        self._run.b.branch_if(condition, self._labels[1], self._labels[2])
        return Round(self._run, self.env, self._labels[1], self._labels[0])

    def carry(self, inner: Env) -> None:
        """Hand each carried name on to the next round."""
        run, b = self._run, self._run.b
        run.lanes.flush()
        copies: list[tuple[Buffer, Block]] = []
        self._next: dict[str, Ssa] = {}
        self._lost: set[str] = set()
        for name, entry in self._entry.items():
            value = inner.get(name, Unknown("which the loop may not define"))
            try:
                self._carry_one(name, entry, value, copies)
            except Unsupported:
                # Not read before it is assigned again? Then nothing is lost but its name.
                self._lost.add(name)
                if name in self._phis:
                    self._next[name] = self._phis[name].value
        if any(_moves_lanes(block) for _, block in copies):
            copies = self._computed_first(copies)
        for lanes in {block.lanes for _, block in copies}:
            run.lanes.store_to([c for c in copies if c[1].lanes == lanes])
        for name, phi in self._phis.items():
            entry = self._entry[name]
            start = entry.base if isinstance(entry, Pointers) else entry.ssa  # type: ignore[union-attr]
            b.fill(phi, (start, self.before), (self._next[name], b.label))
        tested = loaded([self._node.test]) if isinstance(self._node, ast.While) else set()
        for name in self._lost & (tested | exposed(self._node.body)):
            raise Unsupported(f"`{name}`, whose type changes from round to round of a loop,")

    def _carry_one(
        self, name: str, entry: Value, value: Value, copies: list[tuple[Buffer, Block]]
    ) -> None:
        run = self._run
        if isinstance(entry, Scalar):
            data = run.data(value)
            if not isinstance(data, Scalar):
                raise Unsupported("a block carried as a scalar")
            if data.dtype != entry.dtype and not _same_kind(data.dtype, entry.dtype):
                raise Unsupported("another type")
            converted = run.cast(data, entry.dtype)
            assert isinstance(converted, Scalar)
            self._next[name] = converted.ssa
        elif isinstance(entry, Block):
            data = run.data(value)
            shape = run.shape_of(data, entry)
            if shape != entry.shape or data.dtype != entry.dtype:
                raise Unsupported("another type")
            block = run.broadcast(data, shape)
            if block is not self._start[name]:
                copies.append((self._buffers[name], block))
        elif isinstance(entry, Pointers):
            if not isinstance(value, Pointers) or value.offset is not entry.offset:
                raise Unsupported("pointers that move apart")
            self._next[name] = value.base

    def _computed_first(self, copies: list[tuple[Buffer, Block]]) -> list[tuple[Buffer, Block]]:
        """Every new value into a spare buffer, before any old one is overwritten."""
        lanes, spared = self._run.lanes, []
        for buffer, block in copies:
            spare = lanes.buffer(buffer.dtype, block.lanes)
            lanes.store_to([(spare, block)])
            spared.append((buffer, lanes.filled(spare, block)))
        return spared

    def close(self, env: Env) -> None:
        """Continue after the loop."""
        self._run.b.start(self._labels[2])
        for name in assigned(self._node.body) | assigned([self._node]):
            value = self._start.get(name)
            if name in self._lost or value is None:
                env[name] = Unknown("which only the loop defines")
            else:
                env[name] = value
                if isinstance(value, Block):
                    self._run.lanes.mark(value)


class Round:
    """One round of a loop, as a context: its names at the start."""

    def __init__(self, run: Ops, env: Env, label: str, head: str) -> None:
        self._run, self._env, self._label, self._head = run, env, label, head
        self._stack = ExitStack()

    def __enter__(self) -> Env:
        self._run.b.start(self._label)
        self._stack.enter_context(self._run.b.scope())
        self._stack.enter_context(self._run.lanes.region())
        return dict(self._env)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._run.lanes.flush()
            self._run.b.branch(self._head)
        self._stack.__exit__(kind, error, trace)


def _moves_lanes(block: Block) -> bool:
    """Whether a lane's value may come from another lane."""
    pending, seen = [block], {id(block)}
    while pending:
        node = pending.pop()
        if node.kind == "index":
            return True
        for part in node.args:
            if isinstance(part, Block) and id(part) not in seen:
                seen.add(id(part))
                pending.append(part)
    return False


def _same_kind(x: DType, y: DType) -> bool:
    """Whether a value of one integer type may be carried as the other without a surprise."""
    if not x.is_int() or not y.is_int() or x.int_bitwidth > y.int_bitwidth:
        return False
    unsigned_into_wider = not x.is_int_signed() and x.int_bitwidth < y.int_bitwidth
    return bool(unsigned_into_wider or x.is_int_signed() == y.is_int_signed())
