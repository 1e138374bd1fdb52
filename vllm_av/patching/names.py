"""Which names does a change of a Python file bring, and which does it use?

Names that other files can reach: modules, functions, classes, fields, attributes; and those that
a file imports for itself. Read from the syntax tree, so a word in a comment is no use; nothing is
imported.
"""

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache


@dataclass(frozen=True)
class Names:
    """What stands in one file."""

    defined: set[str] = field(default_factory=set)
    """Functions, classes, methods, fields of classes and modules, attributes that are set."""
    bound: set[str] = field(default_factory=set)
    """Variables and arguments, in whatever scope; imports are none of them."""
    imported: set[str] = field(default_factory=set)
    """What imports bind, under the name that the file uses."""
    read: set[str] = field(default_factory=set)
    """Plain names that are read."""
    used: set[str] = field(default_factory=set)
    """Names, attributes and keywords that are read, and what is imported."""


def brought(path: str, before: bytes | None, after: bytes | None) -> set[str]:
    """What others can use after a change of ``path`` and could not before."""
    found = names_in(path, after).defined - names_in(path, before).defined
    new = before is None and after is not None and path.endswith(".py")
    return found | {_module_of(path)} if new else found


def used(path: str, before: bytes | None, after: bytes | None) -> set[str]:
    """What a changed file uses that it did not use before, and does not bind itself."""
    here = names_in(path, after)
    return here.used - names_in(path, before).used - here.defined - here.bound


def imported(path: str, before: bytes | None, after: bytes | None) -> set[str]:
    """What the file imports after a change and did not before."""
    return names_in(path, after).imported - names_in(path, before).imported


def unbound(path: str, before: bytes | None, after: bytes | None) -> set[str]:
    """Plain names that a changed file reads and neither binds nor imports, where it did not before.

    Builtins are among them.
    """
    return _unbound(names_in(path, after)) - _unbound(names_in(path, before))


def _unbound(names: Names) -> set[str]:
    return names.read - names.defined - names.bound - names.imported


def known(path: str, content: bytes | None) -> set[str]:
    """Every name that stands in a file, its own included."""
    here = names_in(path, content)
    own = set() if content is None else {_module_of(path)}
    return here.defined | here.bound | here.used | own


@lru_cache(maxsize=512)
def names_in(path: str, content: bytes | None) -> Names:
    """The names of a file; none where it is no Python, or does not parse."""
    found = Names()
    if not content or not path.endswith(".py"):
        return found
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return found  # told by those who compile it
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                found.used.add(name)
                found.read.add(name)
            case ast.Name(id=name):
                found.bound.add(name)
            case ast.Attribute(attr=name, ctx=context):
                (found.used if isinstance(context, ast.Load) else found.defined).add(name)
            case ast.arg(arg=name):
                found.bound.add(name)
            case ast.keyword(arg=str(name)):
                found.used.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.defined.add(name)
            case ast.ClassDef(name=name):
                found.defined.update([name, *_fields(node)])
            case ast.Module():
                found.defined.update(_fields(node))
            case ast.Import(names=aliases):
                found.used.update(alias.name for alias in aliases)
                found.imported.update(
                    alias.asname or alias.name.partition(".")[0] for alias in aliases
                )
            case ast.ImportFrom(names=aliases):
                found.used.update(_imported(path, node))
                found.imported.update(alias.asname or alias.name for alias in aliases)
    return found


def _fields(node: ast.Module | ast.ClassDef) -> Iterator[str]:
    for line in node.body:
        targets = line.targets if isinstance(line, ast.Assign) else []
        if isinstance(line, ast.AnnAssign):
            targets = [line.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def _imported(path: str, node: ast.ImportFrom) -> Iterator[str]:
    """The module, the names, and the names as modules of it: each may be meant."""
    package = path.split("/")[: -node.level] if node.level else []
    base = ".".join([*package, *([node.module] if node.module else [])])
    yield base
    for alias in node.names:
        yield alias.name
        yield f"{base}.{alias.name}"


def _module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
