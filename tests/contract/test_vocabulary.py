"""The names that a command line may hold, against vLLM's own lists."""

import ast
from pathlib import Path

import pytest

from tests.contract.vllm_source import tree_of
from vllm_av.drafters import SUPPORTED
from vllm_av.preflight.vocabulary import backends, cache_types


def _body(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text()).body


@pytest.mark.parametrize("version", SUPPORTED)
def test_backends_are_the_members_of_the_enum(version: str) -> None:
    body = _body(tree_of(version) / "v1/attention/backends/registry.py")
    enum = next(
        node
        for node in body
        if isinstance(node, ast.ClassDef) and node.name == "AttentionBackendEnum"
    )
    members = [
        target.id
        for node in enum.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    assert sorted(backends(version)) == sorted(members)


@pytest.mark.parametrize("version", SUPPORTED)
def test_cache_types_are_the_words_of_the_literal(version: str) -> None:
    body = _body(tree_of(version) / "config/cache.py")
    literal = next(
        node.value
        for node in body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CacheDType"
    )
    words = [str(node.value) for node in ast.walk(literal) if isinstance(node, ast.Constant)]
    assert sorted(cache_types(version)) == sorted(words)
