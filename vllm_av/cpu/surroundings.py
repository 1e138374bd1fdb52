"""What a kernel takes from its surroundings, as text for the name of its compiled code.

Rule: two kernels of one source that may compile differently have different texts. Triton's own
cache key has the sources of the functions that a kernel calls, but not the values of globals and
of a closure's variables.
"""

import ast
import re
from types import ModuleType
from typing import Any

from vllm_av.cpu.frames import JIT, Frame, source

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def surroundings(function: Any) -> str:
    """The values of all names, and attributes of names, that the function and its callees read.

    Args:
        function: a kernel as a plain Python function.
    """
    found: dict[str, str] = {}
    _visit(function, found, set())
    return repr(sorted(found.items()))


def text(value: Any) -> str:
    """A constant's text; of a function of Triton's, its source and surroundings are a part."""
    if isinstance(value, tuple | list):
        return repr([text(v) for v in value])
    if isinstance(value, JIT):
        return repr((getattr(value, "cache_key", None), surroundings(value.fn)))
    return f"{type(value).__name__} {_ADDRESS.sub('', repr(value))}"


def _visit(function: Any, found: dict[str, str], seen: set[Any]) -> None:
    seen.add(function)
    name = f"{function.__module__}.{function.__qualname__}"
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items())
    found[name] = text(defaults)
    scope = Frame.of(function, 0).scope
    try:
        tree = source(function)
    except Exception:
        return  # the compiler says so, if it comes here
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name | ast.Attribute):
            continue
        try:
            value = _resolved(node, scope)
        except Exception:
            # A local name, an attribute of a value of the kernel, or what the compiler refuses.
            continue
        if isinstance(value, JIT):
            if value.fn not in seen:
                _visit(value.fn, found, seen)
        elif not isinstance(value, ModuleType):
            found[f"{name} {ast.unparse(node)}"] = text(value)


def _resolved(node: ast.expr, scope: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return scope[node.id]
    if isinstance(node, ast.Attribute):
        return getattr(_resolved(node.value, scope), node.attr)
    raise KeyError(ast.unparse(node))
