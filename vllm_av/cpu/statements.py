"""Statements of a kernel: assignment, branches, loops, returns.

Rule: control flow on constants is decided now; the rest becomes basic blocks. Where two paths
meet, a name has one type, as Triton demands; a name without one may exist but not be used.

An early ``return`` is not a jump: the statements after an ``if`` that returns become part of the
branch that does not. A loop carries the names that it assigns and that had a value before it.
"""

import ast
from collections.abc import Callable

from vllm_av.cpu.arith import cast
from vllm_av.cpu.calls import Calls
from vllm_av.cpu.dtypes import held, promote
from vllm_av.cpu.lanes import KEEP_COST
from vllm_av.cpu.loops import Loop
from vllm_av.cpu.merging import Merge, Path
from vllm_av.cpu.ops import Unsupported
from vllm_av.cpu.syntax import falls_through, loaded, returns
from vllm_av.cpu.values import (
    Block,
    Const,
    Env,
    Group,
    Scalar,
    Unknown,
    Value,
)

Body = Callable[[Env], Value]
_NOTHING = Const(None)


class Statements(Calls):
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
                return _NOTHING if statement.value is None else self.evaluate(statement.value, env)
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
            paths.append(Path(b.label, scope, ready, inner, value))
        merge = Merge(self, paths, b.fresh("endif"))
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
        loop = Loop(self, statement, env, live)
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
        loop = Loop(self, statement, env, live)
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
