"""vLLM's speculators, read from the source of an installed vLLM without importing it.

A class and its bases are followed through their import statements, its methods through ``self.x``.
"""

import ast
import builtins
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_av.drafters import SUPPORTED

ROOT = Path(__file__).parents[2]
SPECULATORS = "v1/worker/gpu/spec_decode/__init__.py"
CONFIG = "config/speculative.py"

NEWEST_OFTEN = [
    *(pytest.param(version, marks=pytest.mark.full) for version in SUPPORTED[:-1]),
    SUPPORTED[-1],
]
"""Every version, for tests that ask vLLM long; all but the newest only in ``make test-full``."""


def plain_environment() -> dict[str, str]:
    """This process's variables but for vLLM's, which tests of the engine beside it may have set."""
    return {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}


@cache
def tree_of(version: str) -> Path:
    """The package folder of that vLLM, in one of the environments that ``make test`` sets up."""
    for environment in (".venv", ".venv-033"):
        for site in (ROOT / environment).glob("lib/python3*/site-packages"):
            for info in site.glob("vllm*.dist-info/METADATA"):
                found = info.read_text(errors="replace").partition("\nVersion: ")[2].split("\n")[0]
                if found.partition("+")[0] == version:
                    return site / "vllm"
    raise FileNotFoundError(f"no vLLM {version} is set up: make setup-033")


@dataclass(frozen=True)
class Class:
    """A class with its bases, nearest first; vLLM's speculators inherit from one class each."""

    chain: tuple[ast.ClassDef, ...]

    @property
    def bases(self) -> set[str]:
        """The names of the class and of all that it inherits from."""
        return {node.name for node in self.chain}

    def defined_by(self, method: str) -> str | None:
        """The class whose method of that name is called."""
        owner = self._found(method, 0)
        return self.chain[owner[0]].name if owner else None

    def reach(self, entry: str) -> set[str]:
        """Every ``self.x``, and ``super().x``, that calls from ``entry`` may come to."""
        names: set[str] = set()
        self._follow(entry, 0, names, set())
        return names

    def _found(self, method: str, start: int) -> tuple[int, ast.FunctionDef] | None:
        for depth, node in enumerate(self.chain[start:], start):
            for part in node.body:
                if isinstance(part, ast.FunctionDef) and part.name == method:
                    return depth, part
        return None

    def _follow(self, method: str, start: int, names: set[str], seen: set[ast.AST]) -> None:
        found = self._found(method, start)
        if found is None or found[1] in seen:
            return
        seen.add(found[1])
        for node in ast.walk(found[1]):
            if not isinstance(node, ast.Attribute):
                continue
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                names.add(node.attr)
                self._follow(node.attr, 0, names, seen)
            elif isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()":
                self._follow(node.attr, found[0] + 1, names, seen)


@dataclass(frozen=True)
class Source:
    """One installed vLLM."""

    package: Path

    @cached_property
    def dispatch(self) -> ast.FunctionDef:
        """``init_speculator``."""
        return _function(_parsed(self.package / SPECULATORS), "init_speculator")

    @cached_property
    def speculators(self) -> dict[str, str]:
        """Every class that ``init_speculator`` imports -> the module it imports it from."""
        imports = (node for node in ast.walk(self.dispatch) if isinstance(node, ast.ImportFrom))
        return {name.name: str(node.module) for node in imports for name in node.names}

    @cached_property
    def architectures(self) -> set[str]:
        """The architectures that ``init_speculator`` asks for."""
        constants = self.constants
        found: set[str] = set()
        for node in ast.walk(self.dispatch):
            if isinstance(node, ast.Constant) and str(node.value).endswith("Model"):
                found.add(str(node.value))
            elif isinstance(node, ast.Name) and isinstance(constants.get(node.id), frozenset):
                found |= constants[node.id]
        return found

    @cached_property
    def methods(self) -> set[str]:
        """The literals of ``SpeculativeMethod``."""
        literals = {
            node.targets[0].id: node.value
            for node in _parsed(self.package / CONFIG).body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }

        def words(node: ast.expr) -> Iterator[str]:
            for part in ast.walk(node):
                if isinstance(part, ast.Constant):
                    yield str(part.value)
                elif isinstance(part, ast.Name) and part.id != "Literal":
                    yield from words(literals[part.id])

        return set(words(literals["SpeculativeMethod"]))

    @cached_property
    def constants(self) -> dict[str, Any]:
        """The sets of names at the head of the module of ``SpeculativeConfig``."""
        found: dict[str, Any] = {}
        for node in _parsed(self.package / CONFIG).body:
            if isinstance(node, ast.Assign) and "frozenset({" in ast.unparse(node):
                _run(ast.Module([node], []), found)
        return found

    def read(self, name: str) -> Class:
        """A speculator."""
        return Class(tuple(self._chain(name, self.speculators[name])))

    def _chain(self, name: str, module: str) -> Iterator[ast.ClassDef]:
        file = self.package / (module.removeprefix("vllm.").replace(".", "/") + ".py")
        parsed = _parsed(file)
        node = next(n for n in parsed.body if isinstance(n, ast.ClassDef) and n.name == name)
        yield node
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id != "ABC":
                imports = (n for n in parsed.body if isinstance(n, ast.ImportFrom))
                at = (n.module for n in imports for alias in n.names if alias.name == base.id)
                yield from self._chain(base.id, str(next(at, module)))

    def built_by(self, config: Any) -> str:
        """The name of the class that ``init_speculator`` builds for a ``SpeculativeConfig``.

        Raises:
            NotImplementedError: it knows none.
        """
        function = _Named().visit(_copied(self.dispatch))
        names: dict[str, Any] = {
            **self.constants,
            "validate_adaptive_verification_config": lambda config: None,
        }
        _run(ast.Module([function], []), names)
        vllm_config = SimpleNamespace(speculative_config=config)
        built: str = names["init_speculator"](vllm_config, None, None)
        return built

    def config(self, **facts: Any) -> Any:
        """A ``SpeculativeConfig`` of ``facts`` with vLLM's own questions to it, unvalidated."""
        nodes = next(
            node.body
            for node in _parsed(self.package / CONFIG).body
            if isinstance(node, ast.ClassDef) and node.name == "SpeculativeConfig"
        )
        asked = ("use_", "uses_", "is_", "estimates_")
        questions = [
            n for n in nodes if isinstance(n, ast.FunctionDef) and n.name.startswith(asked)
        ]
        names = dict(self.constants)
        _run(ast.Module([_copied(node) for node in questions], []), names)
        kind = type("SpeculativeConfig", (), {node.name: names[node.name] for node in questions})
        made = kind()
        vars(made).update(facts)
        return made

    def unsupported(self, config: Any) -> list[str]:
        """What of a ``SpeculativeConfig`` the V2 runner does not support."""
        kind = next(
            node
            for node in _parsed(self.package / "config/vllm.py").body
            if isinstance(node, ast.ClassDef) and node.name == "VllmConfig"
        )
        name = "_get_v2_model_runner_unsupported_features"
        names: dict[str, Any] = {}
        _run(ast.Module([_copied(_function(kind, name))], []), names)
        parallel = SimpleNamespace(distributed_executor_backend=None, use_ubatching=False)
        told: Callable[[Any], list[str]] = names[name]
        return told(SimpleNamespace(parallel_config=parallel, speculative_config=config))


class _Named(ast.NodeTransformer):
    """``from x import Speculator`` becomes a function that returns the name."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        made = (f"{alias.name} = lambda *_: {alias.name!r}" for alias in node.names)
        return [statement for text in made for statement in ast.parse(text).body]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        for argument in node.args.args:
            argument.annotation = None
        self.generic_visit(node)
        return node


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def _function(node: ast.Module | ast.ClassDef, name: str) -> ast.FunctionDef:
    return next(n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == name)


def _copied(node: ast.FunctionDef) -> ast.FunctionDef:
    (copy,) = ast.parse(ast.unparse(node)).body
    assert isinstance(copy, ast.FunctionDef)
    return copy


def _run(module: ast.Module, names: dict[str, Any]) -> None:
    names["__builtins__"] = builtins
    exec(compile(ast.fix_missing_locations(module), "<vLLM>", "exec"), names)
