"""Questions about a kernel's syntax tree: which names are read, which are assigned, does it return.

Rule: answers are cautious. A name counts as read if it may be.
"""

import ast
from collections.abc import Iterable


def loaded(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that may be read."""
    names = set()
    for node in nodes:
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                names.add(part.id)
            elif isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
                names.add(part.target.id)
    return names


def assigned(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that may be given a value."""
    return {
        part.id
        for node in nodes
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }


def returns(node: ast.AST) -> bool:
    """Whether there is a return in it."""
    return any(isinstance(part, ast.Return) for part in ast.walk(node))


def falls_through(body: list[ast.stmt]) -> bool:
    """Whether control may come out at the end."""
    for statement in body:
        if isinstance(statement, ast.Return):
            return False
        if (
            isinstance(statement, ast.If)
            and statement.orelse
            and not falls_through(statement.body)
            and not falls_through(statement.orelse)
        ):
            return False
    return True


def exposed(body: list[ast.stmt]) -> set[str]:
    """Names that these statements may read before they assign them."""
    seen: set[str] = set()
    found: set[str] = set()
    for statement in body:
        found |= loaded([statement]) - seen
        if isinstance(statement, ast.Assign):
            seen |= assigned([statement])
    return found
