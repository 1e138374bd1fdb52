"""Ranks that share a batch verify the same drafts of it, whatever each of them believes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine import models
from tests.engine.harness import TOKENS, greedy_tokens, in_processes, speculation
from tests.engine.sampling import TINY_STEPS, tiny_changes
from vllm_av.patching.series import apply_patch, read_series, series_root
from vllm_av.patching.tree import find_tree
from vllm_av.patching.verify import tree_source

HERE = Path(__file__).parent
TEST = "tests/v1/spec_decode/test_adaptive_verification_ranks.py"
PATCH = "core/agree-on-confidences.patch"
MANAGER = "vllm/v1/worker/gpu/spec_decode/adaptive_verification.py"
RANKS = 2
PROMPTS = [[n % 8, 3 * n % 8, 5, (n * n) % 8] for n in range(8)]

CASES = [
    f"{layout}, {fault}"
    for layout in ("tp", "pcp")
    for fault in ("rounding", "nan on rank 0", "nan on rank 1")
]


def before(name: str, path: str) -> bytes:
    """A file as the patches that come earlier in the series leave it."""
    here = find_tree()
    read = tree_source(here).read
    files: dict[str, bytes | None] = {}
    for patch in read_series(series_root(), here.version).patches:
        if patch.name == name:
            content = files[path]
            assert content is not None
            return content
        for diff in patch.diffs:
            files.setdefault(diff.path, read(diff.path))
        files |= apply_patch(patch, files).after
    raise AssertionError(f"the series has no {name}")


@pytest.fixture(scope="module")
def decisions(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank decided in 500 steps, by the manager's text and the case."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "unpatched.py").write_bytes(before(PATCH, MANAGER))
    results = [folder / f"{rank}.json" for rank in range(RANKS)]
    files = [str(series_root() / "upstream" / TEST), str(folder / "unpatched.py")]
    ranks = [
        subprocess.Popen(
            [
                sys.executable,
                str(HERE / "rank_worker.py"),
                *(str(rank), str(folder / "init"), str(result), *files),
            ],
            env=os.environ | {"VLLM_LOGGING_LEVEL": "ERROR"},
        )
        for rank, result in enumerate(results)
    ]
    try:
        # A collective that one rank does not reach would wait for ever.
        assert [process.wait(timeout=120) for process in ranks] == [0] * RANKS
    finally:
        for process in ranks:
            process.kill()
    return [json.loads(result.read_text()) for result in results]


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_keep_the_same_drafts(case: str, decisions: list[dict[str, Any]]) -> None:
    first, second = (found["installed"][case] for found in decisions)
    assert len(first) == 500
    budgets = [budget for budget, _ in first]
    assert all(sum(kept) == budget for budget, kept in first)
    assert len(set(budgets)) > 5
    assert sum(a != b for a, b in pairwise(budgets)) > 100
    assert [budget for budget, _ in second] == budgets
    assert second == first


@pytest.mark.parametrize("case", CASES)
def test_without_the_patch_they_do_not(case: str, decisions: list[dict[str, Any]]) -> None:
    first, second = (found["without the patch"][case] for found in decisions)
    assert sum(a != b for (a, _), (b, _) in zip(first, second, strict=True)) > 3
    assert sum(a != b for (_, a), (_, b) in zip(first, second, strict=True)) > 10


@pytest.mark.parametrize("layout", ["tp", "pcp"])
def test_one_of_them_reads_and_writes_files_for_both(
    layout: str, decisions: list[dict[str, Any]]
) -> None:
    files = [found["start"][layout]["files"] for found in decisions]
    assert files == [[True, "0"], [False, "0"]]


@pytest.mark.parametrize("layout", ["tp", "pcp"])
def test_they_agree_before_the_first_request(layout: str, decisions: list[dict[str, Any]]) -> None:
    assert [found["start"][layout]["warm"] for found in decisions] == [[0.0], [0.0]]


@pytest.mark.parametrize("layout", ["tp", "pcp"])
def test_costs_that_are_refused_end_them_together(
    layout: str, decisions: list[dict[str, Any]]
) -> None:
    for found in decisions:
        words, seconds = found["start"][layout]["refused"]
        assert words == "rank 0 refuses them"
        assert seconds < 20


def price_and_disturb(worker: Any) -> None:
    """In a worker: let drafts cost something, believe in them a bit differently on each rank."""
    runner = worker.model_runner
    manager, scorer = runner.adaptive_verification, runner.speculator.acceptance_scorer.scorer
    sizes = (1, runner.max_num_tokens)
    manager.set_cost_curves([(1, 0.0)], [(n, 8.0 + n) for n in sizes])
    noise = torch.Generator().manual_seed(1 + worker.rank)
    predict, manager.seen = scorer.predict, []

    def disturbed(
        logits: torch.Tensor,
        idx_mapping: torch.Tensor,
        draft_step: torch.Tensor,
        temperature: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        predict(logits, idx_mapping, draft_step, temperature, out)
        column = out[: len(idx_mapping), draft_step]
        column += 0.2 * (torch.rand(column.shape, generator=noise) - 0.5)
        out.clamp_(0.0, 1.0)

    reallocate = manager.reallocate_drafts

    def recorded(req_ids: list[str], idx_mapping: torch.Tensor) -> Any:
        budget = manager._batch_budget[2]
        result = reallocate(req_ids, idx_mapping)
        manager.seen.append((budget, (result[0].diff() - manager.num_bonus_tokens).tolist()))
        return result

    scorer.predict, manager.reallocate_drafts = disturbed, recorded


def seen(worker: Any) -> list[tuple[int, list[int]]]:
    """In a worker: budget and admitted drafts of each verification."""
    return list(worker.model_runner.adaptive_verification.seen)


@pytest.fixture
def two_ranks(random_pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """``vllm.LLM`` over two tensor-parallel workers, in processes of their own."""
    monkeypatch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")  # for this file's functions
    target, draft = random_pair
    spec = speculation(draft, "draft_model", True, TINY_STEPS, {"scorer": "max_probability"})
    with in_processes(target, spec, **tiny_changes(), tensor_parallel_size=RANKS) as llm:
        yield llm


# Three processes load vLLM, for half a minute and more; what they show of the ranks' agreement the
# tests above show too. Ranks that disagree wait for each other, or give tokens that are wrong.
@pytest.mark.full
def test_an_engine_of_two_ranks_that_believe_differently(
    two_ranks: Any, random_pair: tuple[str, str]
) -> None:
    two_ranks.collective_rpc(price_and_disturb)
    tokens = greedy_tokens(two_ranks, PROMPTS)
    assert tokens == [models.greedy(random_pair[0], prompt, TOKENS) for prompt in PROMPTS]
    first, second = two_ranks.collective_rpc(seen)
    assert first == second
    assert len({budget for budget, _ in first}) > 1
    assert any(len(set(kept)) > 1 for _, kept in first)
