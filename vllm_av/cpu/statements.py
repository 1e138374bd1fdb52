"""Statements of a kernel: assignment, branches, loops, returns.

Rule: control flow on constants is decided now; the rest becomes basic blocks. Where two paths meet, a name has one type, as
Triton demands; a name without one may exist but not be used.

An early ``return`` is not a jump: the statements after an ``if`` that returns become part of the branch that does not.
A loop carries the names that it assigns and that had a value before it.
"""

import ast
from collections.abc import Callable
from typing import Any

import triton.language as tl

from vllm_av.cpu.arith import cast
from vllm_av.cpu.dtypes import held, promote
from vllm_av.cpu.expressions import Expressions
from vllm_av.cpu.ir import Phi, Scope, Ssa
from vllm_av.cpu.lanes import KEEP_COST
from vllm_av.cpu.ops import Unsupported
from vllm_av.cpu.syntax import assigned, falls_through, loaded, returns
from vllm_av.cpu.values import (
    Block,
    Buffer,
    Const,
    Env,
    Group,
    Pointers,
    Scalar,
    Shape,
    Unknown,
    Value,
)

Body = Callable[[Env], Value]
_NOTHING = Const(None)


class _Path:
    """One of two branches, evaluated: where it ends and what it knows there."""

    def __init__(self, label: str, scope: Scope, ready: dict[int, Block], env: Env, value: Value):
        self.label, self.scope, self.ready = label, scope, ready
        self.env, self.value = env, value


class Statements(Expressions):
    """Runs statements in an environment."""

    def run_body(self, body: list[ast.stmt], env: Env) -> Value:
        value = self.run(body, env, set())
        return _NOTHING if value is None else value

    def run(self, body: list[ast.stmt], env: Env, live: set[str]) -> Value | None:
        """Run statements; the value returned, or None where control comes out at the end.

        Args:
            live: names that may be read afterwards.
        """
        for k, statement in enumerate(body):
            self.frame.line = statement.lineno
            rest = body[k + 1 :]
            if isinstance(statement, ast.Return):
                if self.frame.loops:
                    raise Unsupported("a return inside a loop")
                return _NOTHING if statement.value is None else self._returned(statement.value, env)
            if isinstance(statement, ast.If):
                test = self.evaluate(statement.test, env)
                after = loaded(rest) | live
                if isinstance(test, Const):
                    chosen = statement.body if test.value else statement.orelse
                    value = self.run(chosen, env, after)
                    if value is not None:
                        return value
                elif returns(statement):
                    return self._branch_and_return(statement, test, rest, env, live)
                else:
                    self._branch_only(statement, test, env, after)
                continue
            self._plain_statement(statement, env, loaded(rest) | live)
        return None

    def _returned(self, node: ast.expr, env: Env) -> Value:
        return self.evaluate(node, env)

    def _plain_statement(self, statement: ast.stmt, env: Env, live: set[str]) -> None:
        match statement:
            case ast.Assign(targets=[target], value=value):
                self._assign(target, self.evaluate(value, env), env)
            case ast.AnnAssign(target=target, annotation=note, value=value) if value is not None:
                found = self.evaluate(value, env)
                if "constexpr" in ast.unparse(note) and isinstance(target, ast.Name):
                    env[target.id] = found
                else:
                    self._assign(target, found, env)
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                before = self.evaluate(ast.Name(name, ast.Load()), env)
                self._assign(target, self.operate(op, before, self.evaluate(value, env)), env)
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Assert():
                pass
            case ast.Expr(value=value):
                self.evaluate(value, env)
            case ast.For():
                self._for(statement, env, live)
            case ast.While():
                self._while(statement, env, live)
            case _:
                raise Unsupported(f"the statement `{ast.unparse(statement).splitlines()[0]}`")

    def _assign(self, target: ast.expr, value: Value, env: Env) -> None:
        if isinstance(target, ast.Tuple):
            items = value.items if isinstance(value, Group) else None
            if items is None or len(items) != len(target.elts):
                raise Unsupported("an assignment to several names")
            for part, item in zip(target.elts, items, strict=True):
                self._assign(part, item, env)
        elif isinstance(target, ast.Name):
            env[target.id] = self._named(value)
        else:
            raise Unsupported(f"an assignment to `{ast.unparse(target)}`")

    def _named(self, value: Value) -> Value:
        if isinstance(value, Group):
            return Group(tuple(self._named(v) for v in value.items))
        value = self.tensor(value)
        self.remember(value)
        return value

    def remember(self, value: Value) -> None:
        if isinstance(value, Block) and value.cost >= KEEP_COST and value.affine is None:
            value.keep = True

    # -- branches

    def _branch_only(self, statement: ast.If, test: Value, env: Env, live: set[str]) -> None:
        def path(body: list[ast.stmt]) -> Body:
            def run(inner: Env) -> Value:
                self.run(body, inner, live)
                return _NOTHING

            return run

        self.branch(test, path(statement.body), path(statement.orelse), env, live)

    def _branch_and_return(
        self, statement: ast.If, test: Value, rest: list[ast.stmt], env: Env, live: set[str]
    ) -> Value:
        if self.frame.loops:
            raise Unsupported("a return inside a loop")

        def path(body: list[ast.stmt]) -> Body:
            whole = [*body, *rest] if falls_through(body) else body

            def run(inner: Env) -> Value:
                value = self.run(whole, inner, live)
                return _NOTHING if value is None else value

            return run

        return self.branch(test, path(statement.body), path(statement.orelse), env, set())

    def branch(self, test: Value, then: Body, other: Body, env: Env, live: set[str]) -> Value:
        """Run one of two bodies and merge what they assign (of the live names) and return."""
        condition = self._scalar(self.truth(test)).ssa
        b = self.b
        self.lanes.flush()
        labels = [b.fresh("then"), b.fresh("else")]
        b.branch_if(condition, *labels)
        paths = []
        for label, body in zip(labels, (then, other), strict=True):
            inner = dict(env)
            b.start(label)
            with b.scope() as scope, self.lanes.region():
                value = body(inner)
                self.lanes.flush()
                ready = self.lanes.ready
            paths.append(_Path(b.label, scope, ready, inner, value))
        merge = _Merge(self, paths, b.fresh("endif"))
        result = merge.value(paths[0].value, paths[1].value)
        merged: Env = {}
        for name in set(paths[0].env) | set(paths[1].env):
            x, y = (p.env.get(name, Unknown("which only one path defines")) for p in paths)
            if x is y:
                merged[name] = x
            elif name in live:
                merged[name] = merge.value(x, y)
            else:
                merged[name] = Unknown("which the paths before define differently")
        finish = merge.finish()
        env.clear()
        env.update({name: finish(value) for name, value in merged.items()})
        value = finish(result)
        if isinstance(value, Unknown):
            raise Unsupported(f"a returned value {value.why}")
        return value

    # -- loops

    def _for(self, statement: ast.For, env: Env, live: set[str]) -> None:
        if not isinstance(statement.target, ast.Name) or statement.orelse:
            raise Unsupported("this form of for")
        if not isinstance(statement.iter, ast.Call):
            raise Unsupported(f"a loop over `{ast.unparse(statement.iter)}`")
        callee, _ = self._callee(statement.iter.func, env)
        name = callee if isinstance(callee, str) else getattr(callee, "__name__", "")
        args = [self.evaluate(a, env) for a in statement.iter.args]
        keywords = {k.arg: self.evaluate(k.value, env) for k in statement.iter.keywords}
        start, stop, step = _bounds(args, keywords)
        index = statement.target.id
        if name == "static_range":
            for value in range(*(_constant(v) for v in (start, stop, step))):
                env[index] = Const(value)
                if self.run(statement.body, env, loaded(statement.body) | live) is not None:
                    raise Unsupported("a return inside a loop")
            return
        if name != "range":
            raise Unsupported(f"a loop over `{name}`")
        self._counted(statement, index, (start, stop, step), env, live)

    def _counted(
        self,
        statement: ast.For,
        index: str,
        bounds: tuple[Value, Value, Value],
        env: Env,
        live: set[str],
    ) -> None:
        b = self.b
        tensors = [self._scalar(self.data(v)) for v in bounds]
        dtype = tensors[0].dtype
        for t in tensors[1:]:
            dtype = promote(dtype, False, t.dtype, False)
        start, stop, step = (cast(b, t.dtype, dtype, t.ssa) for t in tensors)
        down = isinstance(bounds[2], Const) and bounds[2].value < 0
        test = ("sgt" if down else "slt") if dtype.is_int_signed() else "ult"
        env.pop(index, None)
        loop = _Loop(self, statement, env, live)
        counter = b.phi(held(dtype))
        loop.head()
        condition = b.effect("i1", f"icmp {test} {counter.value}, {stop.ref}")
        with loop.body(condition) as inner:
            inner[index] = Scalar(dtype, counter.value)
            self._run_loop(statement.body, inner, loop.live)
            following = b.effect(held(dtype), f"add {counter.value}, {step.ref}")
            loop.carry(inner)
            b.fill(counter, (start, loop.before), (following, b.label))
        loop.close(env)

    def _while(self, statement: ast.While, env: Env, live: set[str]) -> None:
        if statement.orelse:
            raise Unsupported("while with else")
        loop = _Loop(self, statement, env, live)
        loop.head()
        # The test may load: what it found does not hold for the next round.
        with self.b.scope(), self.lanes.region():
            test = self._scalar(self.truth(self.evaluate(statement.test, dict(loop.env)))).ssa
            with loop.body(test) as inner:
                self._run_loop(statement.body, inner, loop.live)
                loop.carry(inner)
        loop.close(env)

    def _run_loop(self, body: list[ast.stmt], env: Env, live: set[str]) -> None:
        self.frame.loops += 1
        try:
            self.run(body, env, live)
        finally:
            self.frame.loops -= 1

    # -- copies between paths

    def block_of(self, value: Value, dtype: Any, shape: Shape) -> Block:
        """A value as a block of this type and shape."""
        return self.broadcast(self.cast(value, dtype), shape)


def _bounds(args: list[Value], keywords: dict[str | None, Value]) -> tuple[Value, Value, Value]:
    args = args + [keywords[k] for k in ("arg1", "arg2", "step") if k in keywords]
    match args:
        case [stop]:
            return Const(0), stop, Const(1)
        case [start, stop]:
            return start, stop, Const(1)
        case [start, stop, step]:
            return start, stop, step
    raise Unsupported("this form of range")


def _constant(value: Value) -> int:
    if isinstance(value, Const) and isinstance(value.value, int):
        return value.value
    raise Unsupported("static_range over something not constant")


class _Merge:
    """Brings the values of two paths together where they meet."""

    def __init__(self, run: Statements, paths: list[_Path], label: str) -> None:
        self._run, self._paths, self._label = run, paths, label
        self._scalars: dict[int, tuple[Scalar, list[Ssa]]] = {}
        self._blocks: list[tuple[Buffer, list[Block], Block]] = []

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
            return _Halves(x.element, base, offset)
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
            buffer = run.lanes.buffer(dtype, _product(shape))
            sources = []
            for path, v in zip(self._paths, (a, c), strict=True):
                with run.lanes.resumed(path.ready):
                    run.b.start(path.label)
                    with run.b.scope(path.scope):
                        block = run.block_of(v, dtype, shape)
                        run.lanes.store_to([(buffer, block)])
                        path.label = run.b.label
                sources.append(block)
            result = Block(dtype, shape, "memory", buffer=buffer)
            self._blocks.append((buffer, sources, result))
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
        for _, _, result in self._blocks:
            run.lanes.mark(result)

        def resolve(value: Value) -> Value:
            if isinstance(value, Group):
                return Group(tuple(resolve(v) for v in value.items))
            if isinstance(value, _Halves):
                base = real[id(value.base)]
                return Pointers(value.element, base.ssa, value.offset)
            return real.get(id(value), value)

        return resolve


class _Halves:
    """Pointers whose base is still a placeholder."""

    def __init__(self, element: Any, base: Scalar, offset: Block) -> None:
        self.element, self.base, self.offset = element, base, offset


class _Loop:
    """A loop's blocks, and the names that it carries from round to round."""

    def __init__(
        self, run: Statements, node: ast.For | ast.While, env: Env, live: set[str]
    ) -> None:
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

    def body(self, condition: Ssa) -> "_Body":
        """Enter a round where the condition holds."""
        self._run.b.branch_if(condition, self._labels[1], self._labels[2])
        return _Body(self, self._labels[1], self._labels[0])

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
        for name in self._lost & _exposed(self._node, self._names):
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


class _Body:
    """The round of a loop, as a context."""

    def __init__(self, loop: _Loop, label: str, head: str) -> None:
        self._loop, self._label, self._head = loop, label, head

    def __enter__(self) -> Env:
        run = self._loop._run
        run.b.start(self._label)
        self._scope = run.b.scope()
        self._scope.__enter__()
        self._region = run.lanes.region()
        self._region.__enter__()
        return dict(self._loop.env)

    def __exit__(self, *error: object) -> None:
        run = self._loop._run
        if error[0] is None:
            run.lanes.flush()
            run.b.branch(self._head)
        self._region.__exit__(*error)
        self._scope.__exit__(*error)


def _exposed(node: ast.For | ast.While, names: list[str]) -> set[str]:
    """Names that a round may read before it assigns them."""
    seen: set[str] = set()
    exposed: set[str] = set()
    for statement in node.body:
        exposed |= loaded([statement]) - seen
        if isinstance(statement, ast.Assign):
            seen |= assigned([statement])
    return exposed & set(names)


def _moves_lanes(block: Block) -> bool:
    """Whether a lane's value may come from another lane."""
    return block.kind == "index" or any(_moves_lanes(a) for a in block.args if isinstance(a, Block))


def _same_kind(x: Any, y: Any) -> bool:
    """Whether a value of one integer type may be carried as the other without a surprise."""
    return bool(x.is_int() and y.is_int() and x.int_bitwidth <= y.int_bitwidth)


def _numbers_equal(x: Value, y: Value) -> bool:
    return (
        isinstance(x, Const)
        and isinstance(y, Const)
        and type(x.value) is type(y.value)
        and x.value == y.value
    )


def _product(shape: Shape) -> int:
    total = 1
    for n in shape:
        total *= n
    return total
