"""Functions of a kernel as Python has them: their syntax trees, and what their names mean.

Rule: names resolve as Python resolves them: a closure's variables, then globals.
"""

import ast
import inspect
import textwrap
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITCallable

from vllm_av.cpu.ops import Unsupported

JIT = (JITCallable, InterpretedFunction)


@dataclass(slots=True)
class Frame:
    """One function being evaluated: a kernel, or a function inlined into it."""

    function: Any
    depth: int
    loops: int = 0
    line: int = 0
    scope: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, function: Any, depth: int) -> "Frame":
        """A frame for a plain Python function."""
        scope = dict(function.__globals__)
        if function.__closure__:
            cells = (cell.cell_contents for cell in function.__closure__)
            scope |= dict(zip(function.__code__.co_freevars, cells, strict=True))
        return cls(function, depth, scope=scope)


@cache
def source(function: Any) -> ast.FunctionDef:
    """The syntax tree of a function below its decorators."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise Unsupported("a kernel that is not a plain function")
    return tree
