"""Which classes vLLM's registry names for the models that it serves, read from its source.

A class and its bases are followed through import statements, of which those for other platforms
count too.

Rule: nothing of vLLM is imported.
"""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_TABLES = (
    "_TEXT_GENERATION_MODELS",
    "_MULTIMODAL_MODELS",
    "_TRANSFORMERS_SUPPORTED_MODELS",
    "_TRANSFORMERS_BACKEND_MODELS",
)


@dataclass(frozen=True)
class Registered:
    """The models of one installed vLLM; ``package`` is its folder."""

    package: Path

    def served(self) -> dict[str, tuple[str, str]]:
        """Architecture -> module and class, of all that generates text."""
        found: dict[str, tuple[str, str]] = {}
        for node in _parsed(self.package / "model_executor/models/registry.py").body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in _TABLES:
                found |= ast.literal_eval(node.value)
        return found

    def lineages(self, module: str, name: str) -> list[frozenset[str]]:
        """The names of a class and of all it inherits from, once for each platform's class."""
        dotted = module if "." in module else f"vllm.model_executor.models.{module}"
        return [self._lineage(*each) for each in self._classes(self._at(dotted), name)]

    def _at(self, module: str) -> Path:
        path = self.package.parent / module.replace(".", "/")
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")

    @cache  # noqa: B019 - of a frozen value, for as long as a test runs
    def _classes(self, file: Path, name: str) -> tuple[tuple[Path, ast.ClassDef], ...]:
        """Where a name of a module is defined; nowhere for what is not vLLM's."""
        classes, imports = _named(file)
        if name in classes:
            return ((file, classes[name]),)
        found: list[tuple[Path, ast.ClassDef]] = []
        for node, original in imports.get(name, ()):
            module = self._absolute(file, node)
            if module.split(".")[0] == self.package.name:
                found += self._classes(self._at(module), original)
        return tuple(found)

    def _absolute(self, file: Path, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = file.relative_to(self.package.parent).parts[: -node.level]
        return ".".join([*parts, *([node.module] if node.module else [])])

    @cache  # noqa: B019
    def _lineage(self, file: Path, node: ast.ClassDef) -> frozenset[str]:
        found = {node.name}
        for base in node.bases:
            name = ast.unparse(base).partition("[")[0]
            if name != node.name:
                for each in self._classes(file, name):
                    found |= self._lineage(*each)
        return frozenset(found)


Imports = dict[str, list[tuple[ast.ImportFrom, str]]]


@cache
def _named(file: Path) -> tuple[dict[str, ast.ClassDef], Imports]:
    """The classes of a module, and what it imports: name -> statement and name over there."""
    parsed = _parsed(file)
    classes = {node.name: node for node in parsed.body if isinstance(node, ast.ClassDef)}
    imports: Imports = {}
    for node in ast.walk(parsed):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                imports.setdefault(alias.asname or alias.name, []).append((node, alias.name))
    return classes, imports


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())
