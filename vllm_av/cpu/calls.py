"""Calls in a kernel: of ``triton.language``, of other kernel functions, of plain Python.

Rule: a call of another ``@triton.jit`` function is inlined by evaluating its body with the
arguments given, so that constant arguments fold there.
"""

import ast
import inspect
from abc import abstractmethod
from functools import reduce
from types import ModuleType
from typing import Any

import triton
import triton.language as tl

from vllm_av.cpu.expressions import Expressions, const, plain
from vllm_av.cpu.frames import JIT, Frame, source
from vllm_av.cpu.ops import Unsupported
from vllm_av.cpu.values import Block, Const, Env, Scalar, Value, describe

_MAX_DEPTH = 40
# Plain Python functions, of constants.
_PURE = {"range", "min", "max", "len", "float", "int", "bool", "abs", "isinstance", "str", "tuple"}


class Calls(Expressions):
    """Evaluates calls."""

    def _Call(self, node: ast.Call, env: Env) -> Value:
        if any(isinstance(a, ast.Starred) for a in node.args) or None in [
            k.arg for k in node.keywords
        ]:
            raise Unsupported(f"the call `{ast.unparse(node)}`")
        found, bound = self._callee(node.func, env)
        args = [self.evaluate(a, env) for a in node.args]
        keywords = {str(k.arg): self.evaluate(k.value, env) for k in node.keywords}
        if bound is not None:
            args.insert(0, bound)
        if isinstance(found, str):
            method = self.find(found)
            if method is None:
                raise Unsupported(f"`tl.{found}`")
            try:
                inspect.signature(method).bind(*args, **keywords)
            except TypeError as error:
                raise Unsupported(f"`{ast.unparse(node)}` ({error})") from None
            return method(*args, **keywords)
        if isinstance(found, JIT):
            return self.inline(found, args, keywords)
        return self._constant_call(node, found, args, keywords)

    def _callee(self, node: ast.expr, env: Env) -> tuple[Any, Value | None]:
        """What is called: the name of a builtin, or a Python object; and the tensor it
        is a method of.
        """
        if isinstance(node, ast.Attribute):
            base = self.evaluate(node.value, env)
            if not isinstance(base, Const):
                return {"to": "cast"}.get(node.attr, node.attr), base
            if isinstance(base.value, ModuleType) and _is_language(base.value):
                if self.find(node.attr) is not None:
                    return node.attr, None
                target = getattr(base.value, node.attr, None)
                return (target if _evaluable(target) else node.attr), None
            return getattr(base.value, node.attr), None
        function = self.evaluate(node, env)
        if not isinstance(function, Const):
            raise Unsupported(f"a call of {describe(function)}")
        target = function.value
        module = getattr(target, "__module__", "") or ""
        if module.startswith("triton.language") and self.find(getattr(target, "__name__", "")):
            return target.__name__, None
        return target, None

    def _constant_call(
        self, node: ast.Call, function: Any, args: list[Value], keywords: dict[str, Value]
    ) -> Value:
        if function in (float, int, bool) and args and isinstance(args[0], Scalar | Block):
            raise Unsupported(f"`{ast.unparse(node)}` of a tensor")
        if function in (min, max) and any(isinstance(a, Scalar | Block) for a in args):
            if len(args) < 2 or keywords:
                raise Unsupported(f"`{ast.unparse(node)}` of a tensor")
            extreme = self.tl_minimum if function is min else self.tl_maximum
            return reduce(extreme, args)  # as in Triton
        named = getattr(function, "__name__", "")
        allowed = named in _PURE or type(function).__name__ == "ConstexprFunction"
        allowed |= isinstance(function, type) and issubclass(function, tl.dtype | tl.constexpr)
        allowed |= isinstance(getattr(function, "__self__", None), tl.dtype)
        allowed |= function in (triton.cdiv, triton.next_power_of_2)
        if not allowed:
            raise Unsupported(f"the call `{ast.unparse(node)}`")
        return const(function(*map(plain, args), **{k: plain(v) for k, v in keywords.items()}))

    def inline(self, callee: Any, args: list[Value], keywords: dict[str, Value]) -> Value:
        """The value of a call of another kernel function."""
        function = callee.fn
        if self.frame.depth >= _MAX_DEPTH:
            raise Unsupported(f"recursion in `{function.__name__}`")
        tree = source(function)
        try:
            bound = inspect.signature(function).bind(*args, **keywords)
        except TypeError as error:
            raise Unsupported(f"a call of `{function.__name__}` ({error})") from None
        env: Env = {}
        for name, parameter in inspect.signature(function).parameters.items():
            env[name] = bound.arguments.get(name) or const(parameter.default)
            self.remember(env[name])
        outer, self.frame = self.frame, Frame.of(function, self.frame.depth + 1)
        try:
            value = self.run_body(tree.body, env)
        except Unsupported as error:
            error.args = (
                (f"{error} in `{function.__name__}`",) if " in `" not in str(error) else error.args
            )
            raise
        finally:
            self.frame = outer
        return value

    @abstractmethod
    def run_body(self, body: list[ast.stmt], env: Env) -> Value:
        """Statements; see :mod:`vllm_av.cpu.statements`."""

    @abstractmethod
    def remember(self, value: Value) -> None:
        """A value got a name: if computing it again costs, keep it when it is first computed."""


def _evaluable(target: Any) -> bool:
    return isinstance(target, (*JIT, type)) or type(target).__name__ == "ConstexprFunction"


def _is_language(module: ModuleType) -> bool:
    name = module.__name__
    return name.startswith("triton.language") or name.endswith("libdevice")
