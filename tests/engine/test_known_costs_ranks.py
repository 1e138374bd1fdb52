"""A cost table where vLLM's core and two ranks are processes of their own: minutes of starting.

The drafter is EAGLE's, whose config vLLM edits when it loads it: each process sees another one.
"""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.engine.drafters import autoregressive
from tests.engine.harness import greedy_tokens, in_processes, speculation
from tests.engine.sampling import tiny_changes
from vllm_av.budget.costs import table

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

PROMPTS = [[1, 2, 3], [4, 5]]


def started(pair: tuple[str, str], path: Path) -> AbstractContextManager[Any]:
    target, draft = pair
    block = {"exploration": 0, "budget": {"cost_table_path": str(path)}}
    spec = speculation(draft, "eagle", True, 3, block)
    return in_processes(target, spec, **tiny_changes(), tensor_parallel_size=2)


def test_ranks_share_a_table_and_end_together_where_it_does_not_fit(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair, path = autoregressive.eagle(tmp_path), tmp_path / "costs.json"
    with started(pair, path) as llm:
        tokens = greedy_tokens(llm, PROMPTS)
    content = path.read_text()
    assert table.read(path).identity["tensor_parallel_size"] == 2

    with started(pair, path) as llm:
        assert greedy_tokens(llm, PROMPTS) == tokens
    assert path.read_text() == content

    other = json.loads(content)
    other["identity"]["capture_sizes"] = [1, 2]
    path.write_text(json.dumps(other))
    capfd.readouterr()
    # Rank 1 waits for what rank 0 found, and must not wait for ever.
    with pytest.raises(RuntimeError, match="Engine core initialization failed"):
        started(pair, path).__enter__()
    told = "".join(capfd.readouterr())
    assert "[AV-COST-TABLE-OTHER]" in told
    assert "capture_sizes is [1, 2] there and [] here" in told
