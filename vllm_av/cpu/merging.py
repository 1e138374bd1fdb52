"""Where two paths meet: one value for each name that they give.

Rule: a scalar becomes a phi, a block is written to one buffer at the end of either path. Two
values of types that do not promote, or of which one is missing, give a name without a value.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import triton.language as tl

from vllm_av.cpu.dtypes import held, promote
from vllm_av.cpu.ir import Scope, Ssa
from vllm_av.cpu.ops import Ops, Unsupported
from vllm_av.cpu.values import Block, Const, Env, Group, Pointers, Scalar, Unknown, Value


@dataclass(slots=True)
class Path:
    """One of two branches, evaluated: where it ends, what it knows there, what it gives."""

    label: str
    scope: Scope
    ready: dict[int, Block]
    env: Env
    value: Value


class Merge:
    """Brings the values of two paths together where they meet."""

    def __init__(self, run: Ops, paths: list[Path], label: str) -> None:
        self._run, self._paths, self._label = run, paths, label
        # By identity, and with the key kept alive: placeholders, and pointers with one as base.
        self._pointers: dict[int, tuple[Pointers, Scalar]] = {}
        self._scalars: dict[int, tuple[Scalar, list[Ssa]]] = {}
        self._blocks: list[Block] = []

    def value(self, x: Value, y: Value) -> Value:
        """What stands for the two until :meth:`finish`."""
        if x is y or (_numbers_equal(x, y)):
            return x
        if isinstance(x, Unknown) or isinstance(y, Unknown):
            return x if isinstance(x, Unknown) else y
        if isinstance(x, Group) and isinstance(y, Group) and len(x.items) == len(y.items):
            return Group(tuple(map(self.value, x.items, y.items)))
        if isinstance(x, Pointers) and isinstance(y, Pointers) and x.element == y.element:
            base = self._scalar(tl.int64, [x.base, y.base])
            offset = self.value(x.offset, y.offset)
            if not isinstance(offset, Block):
                return Unknown("pointers of two shapes")
            pointers = Pointers(x.element, base.ssa, offset)
            self._pointers[id(pointers)] = (pointers, base)
            return pointers
        run = self._run
        try:
            a, c = run.data(x), run.data(y)
            if a.dtype != c.dtype:
                dtype = promote(a.dtype, isinstance(x, Const), c.dtype, isinstance(y, Const))
            else:
                dtype = a.dtype
            shape = run.shape_of(a, c)
        except (Unsupported, TypeError, AttributeError):
            return Unknown("which has two types here")
        if shape:
            buffer = run.lanes.buffer(dtype, prod(shape))
            for path, v in zip(self._paths, (a, c), strict=True):
                with run.lanes.resumed(path.ready):
                    run.b.start(path.label)
                    with run.b.scope(path.scope):
                        block = run.broadcast(run.cast(v, dtype), shape)
                        run.lanes.store_to([(buffer, block)])
                        path.label = run.b.label
            result = Block(dtype, shape, "memory", buffer=buffer)
            self._blocks.append(result)
            return result
        refs = []
        for path, v in zip(self._paths, (a, c), strict=True):
            run.b.start(path.label)
            with run.b.scope(path.scope):
                converted = run.cast(v, dtype)
                assert isinstance(converted, Scalar)
                refs.append(converted.ssa)
        return self._scalar(dtype, refs)

    def _scalar(self, dtype: Any, refs: list[Ssa]) -> Scalar:
        placeholder = Scalar(dtype, Ssa(held(dtype), f"?{len(self._scalars)}"))
        self._scalars[id(placeholder)] = (placeholder, refs)
        return placeholder

    def finish(self) -> Callable[[Value], Value]:
        """Meet; the function returned turns what :meth:`value` gave into values."""
        run, b = self._run, self._run.b
        for path in self._paths:
            b.start(path.label)
            b.branch(self._label)
        b.start(self._label)
        real: dict[int, Scalar] = {}
        for key, (placeholder, refs) in self._scalars.items():
            pairs = [(ref, p.label) for ref, p in zip(refs, self._paths, strict=True)]
            same = refs[0] == refs[1]
            ssa = refs[0] if same else b.merge(refs[0].ty, *pairs)
            real[key] = Scalar(placeholder.dtype, ssa)
        for block in self._blocks:
            run.lanes.mark(block)

        def resolve(value: Value) -> Value:
            if isinstance(value, Group):
                return Group(tuple(resolve(v) for v in value.items))
            if isinstance(value, Pointers) and id(value) in self._pointers:
                base = real[id(self._pointers[id(value)][1])]
                return Pointers(value.element, base.ssa, value.offset)
            return real.get(id(value), value)

        return resolve


def _numbers_equal(x: Value, y: Value) -> bool:
    return (
        isinstance(x, Const)
        and isinstance(y, Const)
        and type(x.value) is type(y.value)
        and x.value == y.value
    )
