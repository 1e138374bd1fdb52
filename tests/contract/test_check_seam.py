"""What the patched vLLMs call their reasons against adaptive verification, and which are left."""

import ast
from collections.abc import Iterator

import pytest

from tests.contract.vllm_source import tree_of
from vllm_av.drafters import SUPPORTED
from vllm_av.preflight.engine import _CODES

CONFIG = "config/vllm.py"
LAYERS = "v1/worker/gpu/spec_decode/target_check.py"
METHOD = "_validate_adaptive_verification"
OF_ONE = {"0.32.0": {"batch_sharded_sampling"}, "0.33.0": set()}
"""What only one version cannot have."""


def calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
            yield node


def kinds(version: str) -> list[str]:
    """The first argument of each blocker, in vLLM's order."""
    found = []
    for file, maker in ((CONFIG, "block"), (LAYERS, "Blocker")):
        tree = ast.parse((tree_of(version) / file).read_text())
        words = [call.args[0] for call in calls(tree, maker)]
        found += [word.value for word in words if isinstance(word, ast.Constant)]
    return found


@pytest.mark.parametrize("version", SUPPORTED)
def test_each_kind_of_reason_has_a_code(version: str) -> None:
    known = set(_CODES) - {"batch_sharded_sampling"} | OF_ONE[version]
    assert sorted(kinds(version)) == sorted(known)


@pytest.mark.parametrize("version", SUPPORTED)
def test_nothing_else_of_a_config_refuses_adaptive_verification(version: str) -> None:
    """The collected check, the plugin's settings, and what a missing plugin means."""
    left = []
    for file in (CONFIG, "config/speculative.py"):
        tree = ast.parse((tree_of(version) / file).read_text())
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for function in functions:
            for node in ast.walk(function):
                if isinstance(node, ast.Raise) and "daptive" in ast.unparse(node):
                    left.append((file, function.name))
    assert left == []


@pytest.mark.parametrize("version", SUPPORTED)
def test_the_check_comes_before_what_depends_on_it(version: str) -> None:
    """In the making of a config before the V1 runner's own refusal; in a worker first of all."""
    tree = ast.parse((tree_of(version) / CONFIG).read_text())
    (made,) = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and ast.unparse(node).find(f"self.{METHOD}()") > 0
    )
    assert made.name == "__post_init__"
    order = [ast.unparse(node.func) for node in ast.walk(made) if isinstance(node, ast.Call)]
    lines = {ast.unparse(n.func): n.lineno for n in ast.walk(made) if isinstance(n, ast.Call)}
    at = lines[f"self.{METHOD}"]
    assert lines["self._disable_cudagraphs_for_v2_stock_torch_compile"] < at
    assert lines["current_platform.check_and_update_config"] < at
    for later in ("_validate_v1_model_runner", "_validate_batch_sharded_sampling"):
        assert at < lines[f"self.{later}"]
    assert order.count(f"self.{METHOD}") == 1
    runner = (tree_of(version) / "v1/worker/gpu/model_runner.py").read_text()
    start = runner[runner.index("def __init__(self, vllm_config: VllmConfig, device") :]
    assert start.index(f"vllm_config.{METHOD}()") < start.index("self.speculative_config =")
