"""Expressions of a kernel: names, constants, operators, attributes, subscripts.

Rule: what is known while compiling is folded, the rest becomes values.
"""

import ast
import builtins as python
from abc import ABC, abstractmethod
from typing import Any

import triton.language as tl

from vllm_av.cpu.builtins import Builtins
from vllm_av.cpu.frames import Frame
from vllm_av.cpu.ops import Unsupported
from vllm_av.cpu.values import (
    Block,
    Const,
    Env,
    Group,
    Pointers,
    Scalar,
    Unknown,
    Value,
    describe,
)

_BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "div",
    ast.Mod: "mod",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "shr",
    ast.Pow: "pow",
}
_COMPARE = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}
_UNARY = {ast.USub: "neg", ast.Invert: "invert", ast.UAdd: "pos"}


class Expressions(Builtins, ABC):
    """Evaluates expressions in an environment."""

    frame: Frame

    def evaluate(self, node: ast.expr, env: Env) -> Value:
        """The value of an expression; what it must do at once (loads, calls) is emitted."""
        self.frame.line = getattr(node, "lineno", self.frame.line)
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is None:
            raise Unsupported(f"the expression `{ast.unparse(node)}`")
        value = method(node, env)
        if isinstance(value, Unknown):
            raise Unsupported(f"`{ast.unparse(node)}`, {value.why}")
        return value  # type: ignore[no-any-return]

    def _Constant(self, node: ast.Constant, env: Env) -> Value:
        return Const(node.value)

    def _JoinedStr(self, node: ast.JoinedStr, env: Env) -> Value:
        return Const(ast.unparse(node))

    def _Name(self, node: ast.Name, env: Env) -> Value:
        if node.id in env:
            return env[node.id]
        if node.id in self.frame.scope:
            return const(self.frame.scope[node.id])
        if hasattr(python, node.id):
            return Const(getattr(python, node.id))
        raise Unsupported(f"the name `{node.id}`, which is not defined here")

    def _Tuple(self, node: ast.Tuple | ast.List, env: Env) -> Value:
        return Group(tuple(self.evaluate(e, env) for e in node.elts))

    _List = _Tuple

    def _BinOp(self, node: ast.BinOp, env: Env) -> Value:
        x, y = self.evaluate(node.left, env), self.evaluate(node.right, env)
        return self.operate(node.op, x, y)

    def operate(self, op: ast.operator, x: Value, y: Value) -> Value:
        """``x op y``."""
        name = _BINARY.get(type(op))
        if name is None or (name == "pow" and not isinstance(x, Const)):
            raise Unsupported(f"the operator {type(op).__name__}")
        if isinstance(x, Group) and isinstance(y, Group) and name == "add":
            return Group(x.items + y.items)
        return self.binary(name, x, y)

    def _UnaryOp(self, node: ast.UnaryOp, env: Env) -> Value:
        x = self.evaluate(node.operand, env)
        if isinstance(node.op, ast.Not):
            return self.negation(x)
        return self.unary(_UNARY[type(node.op)], x)

    def _Compare(self, node: ast.Compare, env: Env) -> Value:
        left, result = self.evaluate(node.left, env), None
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(comparator, env)
            test = self._test(op, left, right)
            result = test if result is None else self.logical("and", result, test)
            left = right
        assert result is not None
        return result

    def _test(self, op: ast.cmpop, x: Value, y: Value) -> Value:
        if isinstance(op, ast.Is | ast.IsNot):
            same = isinstance(x, Const) and isinstance(y, Const) and x.value is y.value
            return Const(same == isinstance(op, ast.Is))
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(x, Const):
                raise Unsupported("`in` of something not constant")
            found = x.value in plain(y)
            return Const(found == isinstance(op, ast.In))
        if isinstance(x, Const) != isinstance(y, Const) and None in (_maybe(x), _maybe(y)):
            return Const(isinstance(op, ast.NotEq))  # nothing else is equal to None
        return self.binary(_COMPARE[type(op)], x, y)

    def _BoolOp(self, node: ast.BoolOp, env: Env) -> Value:
        # As Triton has it: a constant decides now or has no part in the result.
        stop, name = isinstance(node.op, ast.Or), "or" if isinstance(node.op, ast.Or) else "and"
        result: Value | None = None
        for part in node.values:
            value = self.evaluate(part, env)
            if isinstance(value, Const | Group):
                if bool(value.value if isinstance(value, Const) else value.items) == stop:
                    return value
            else:
                result = value if result is None else self.logical(name, result, value)
        return value if result is None else result

    def _IfExp(self, node: ast.IfExp, env: Env) -> Value:
        test = self.evaluate(node.test, env)
        if isinstance(test, Const):
            return self.evaluate(node.body if test.value else node.orelse, env)
        return self.branch(
            test,
            lambda inner: self.evaluate(node.body, inner),
            lambda inner: self.evaluate(node.orelse, inner),
            env,
            set(),
        )

    @abstractmethod
    def branch(self, test: Value, then: Any, other: Any, env: Env, live: set[str]) -> Value:
        """Control flow; see :mod:`vllm_av.cpu.statements`."""

    # -- attributes, subscripts

    def _Attribute(self, node: ast.Attribute, env: Env) -> Value:
        base, name = self.evaluate(node.value, env), node.attr
        if isinstance(base, Const):
            return const(getattr(base.value, name))
        if isinstance(base, Scalar | Block | Pointers):
            if name == "T":
                raise Unsupported("a transposed block")
            dtype = tl.pointer_type(base.element) if isinstance(base, Pointers) else base.dtype
            shape = () if isinstance(base, Scalar) else base.shape
            if name == "dtype":
                return Const(dtype)
            if name == "type":
                return Const(tl.block_type(dtype, list(shape)) if shape else dtype)
            if name == "shape":
                return Group(tuple(Const(n) for n in shape))
            if name == "numel":
                return Const(1 if isinstance(base, Scalar | Pointers) else base.lanes)
        raise Unsupported(f"the attribute `{name}` of {describe(base)}")

    def _Subscript(self, node: ast.Subscript, env: Env) -> Value:
        base = self.evaluate(node.value, env)
        if isinstance(base, Block):
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            return self._expand(base, parts)
        index = self.evaluate(node.slice, env)
        if isinstance(base, Group) and isinstance(index, Const):
            return base.items[index.value]  # type: ignore[no-any-return]
        if isinstance(base, Const) and isinstance(index, Const):
            return const(base.value[index.value])
        raise Unsupported(f"`{ast.unparse(node)}`")

    def _expand(self, block: Block, parts: list[ast.expr]) -> Value:
        sizes, shape = list(block.shape), []
        for part in parts:
            if isinstance(part, ast.Slice) and not (part.lower or part.upper or part.step):
                shape.append(sizes.pop(0))
            elif isinstance(part, ast.Constant) and part.value is None:
                shape.append(1)
            else:
                raise Unsupported("an index into a block")
        return self.reshape(block, (*shape, *sizes))


def const(found: Any) -> Value:
    """A Python object as a value."""
    if isinstance(found, tl.constexpr):
        found = found.value
    if isinstance(found, tuple | list):
        return Group(tuple(const(v) for v in found))
    return Const(found)


def _maybe(value: Value) -> Any:
    return value.value if isinstance(value, Const) else value


def plain(value: Value) -> Any:
    """The Python object of a constant.

    Raises:
        Unsupported: it is none.
    """
    if isinstance(value, Const):
        return value.value
    if isinstance(value, Group):
        return tuple(plain(v) for v in value.items)
    raise Unsupported(f"{describe(value)} where a constant is needed")
