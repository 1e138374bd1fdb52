"""The words for what only the target applies, against the flags of each patched vLLM."""

import ast

import pytest

from tests.contract.vllm_source import tree_of
from vllm_av.drafters import SUPPORTED
from vllm_av.scorers.target_only import WORDS


@pytest.mark.parametrize("version", SUPPORTED)
def test_each_flag_has_its_word_at_its_bit(version: str) -> None:
    source = (tree_of(version) / "v1/worker/gpu/sample/target_only.py").read_text()
    [flags] = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    assert [ast.unparse(base) for base in flags.bases] == ["IntFlag"]
    names = []
    for node in flags.body:
        if isinstance(node, ast.Assign):
            assert ast.unparse(node.value) == "auto()"
            names.append(ast.unparse(node.targets[0]).lower())
    assert len(names) == len(WORDS)
    assert [name for name, word in zip(names, WORDS, strict=True) if word not in name] == []
