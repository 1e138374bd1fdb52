"""Where in a Python file does a line stand: in which function, and what is that function's text?

Read from the syntax tree; nothing is imported. A file that does not parse has no scopes.
"""

import ast
import warnings
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class Scope:
    """One function or class."""

    name: str
    """``Class.method``; names of what is inside other functions too."""
    first: int
    """Zero-based line, decorators included."""
    end: int
    """The line after its last."""
    is_class: bool


@lru_cache(maxsize=128)
def scopes_of(content: bytes | None) -> tuple[Scope, ...]:
    """All of a file, outer ones before what they hold."""
    if not content:
        return ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return ()
    found: list[Scope] = []

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([child.lineno, *(line.lineno for line in child.decorator_list)]) - 1
                name = f"{prefix}{child.name}"
                is_class = isinstance(child, ast.ClassDef)
                found.append(Scope(name, first, child.end_lineno or child.lineno, is_class))
                walk(child, f"{name}.")
            elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                walk(child, prefix)  # an expression holds no definition

    walk(tree, "")
    return tuple(found)


def scope_at(content: bytes | None, line: int) -> Scope | None:
    """The innermost function or class that holds a zero-based line; None: none does."""
    return next(
        (one for one in reversed(scopes_of(content)) if one.first <= line < one.end),
        None,
    )


def name_at(content: bytes | None, line: int) -> str:
    """The name of :func:`scope_at`; empty: the line is in none."""
    scope = scope_at(content, line)
    return scope.name if scope else ""


def text_of(content: bytes | None, name: str) -> bytes | None:
    """The lines of a function by its name; None: there is none of that name."""
    lines = (content or b"").split(b"\n")
    found = [one for one in scopes_of(content) if one.name == name and not one.is_class]
    return b"\n".join(line for one in found for line in lines[one.first : one.end]) or None
