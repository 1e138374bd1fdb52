"""The table of drafters against the source of each vLLM that is supported."""

import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from tests.contract.vllm_source import ROOT, Source, tree_of
from vllm_av.drafters import (
    SUPPORTED,
    TYPES,
    DrafterType,
    DraftLogits,
    Head,
    Passes,
    drafter_type,
)

ROWS = [(version, row) for row in TYPES for version in row.vllm]
BUILT = [(version, row) for version, row in ROWS if row.speculator is not None]


def named(value: object) -> str:
    return value.name if isinstance(value, DrafterType) else str(value)


@pytest.fixture(scope="module")
def sources() -> dict[str, Source]:
    return {version: Source(tree_of(version)) for version in SUPPORTED}


def facts(row: DrafterType, method: str, architecture: str | None) -> dict[str, Any]:
    """A ``SpeculativeConfig`` of that row."""
    hf_config = SimpleNamespace(
        model_type=row.model_type or "any",
        num_nextn_predict_layers=3 if row.many_modules else 1,
    )
    return {
        "method": method,
        "num_speculative_tokens": 3,
        "parallel_drafting": row.parallel or method in ("dflash", "dspark"),
        "draft_model_config": SimpleNamespace(
            architectures=[architecture or "AnyModel"], hf_config=hf_config
        ),
    }


def cases(row: DrafterType, source: Source) -> list[dict[str, Any]]:
    """One per method and architecture that the row names and this vLLM has."""
    there = [name for name in row.architectures if name in source.architectures] or [None]
    return [facts(row, method, name) for method in row.methods for name in there]


def test_the_versions_are_those_of_the_series() -> None:
    series = sorted(file.parent.name for file in ROOT.glob("patches/*/series"))
    assert list(SUPPORTED) == series


@pytest.mark.parametrize("version", SUPPORTED)
def test_the_table_has_every_speculator_and_no_other(
    version: str, sources: dict[str, Source]
) -> None:
    table = {row.speculator for row in TYPES if version in row.vllm} - {None}
    assert table == set(sources[version].speculators)
    assert len(table) > 10


@pytest.mark.parametrize("version", SUPPORTED)
def test_the_table_has_every_method_and_no_other(version: str, sources: dict[str, Source]) -> None:
    methods = sources[version].methods
    assert {"eagle3", "deepseek_mtp", "ngram_gpu"} <= methods
    table = {method for row in TYPES if version in row.vllm for method in row.methods}
    # vLLM takes deepseek_mtp and its like for mtp.
    settled = {"mtp" if method.endswith("_mtp") else method for method in methods}
    assert settled == table
    assert {method for method in methods if drafter_type(method) is None} == set()


@pytest.mark.parametrize("version", SUPPORTED)
def test_every_architecture_that_decides_is_in_the_table(
    version: str, sources: dict[str, Source]
) -> None:
    table = {name for row in TYPES if version in row.vllm for name in row.architectures}
    assert sources[version].architectures - table == set()


@pytest.mark.parametrize("row", [row for row in TYPES if row.architectures], ids=named)
def test_every_architecture_of_a_row_decides_where_the_row_is_offered(
    row: DrafterType, sources: dict[str, Source]
) -> None:
    known = [set(row.architectures) & sources[version].architectures for version in row.vllm]
    assert all(known)
    assert set().union(*known) == set(row.architectures)


@pytest.mark.parametrize(("version", "row"), ROWS, ids=named)
def test_vllm_builds_what_the_row_says(
    version: str, row: DrafterType, sources: dict[str, Source]
) -> None:
    source = sources[version]
    for case in cases(row, source):
        config = source.config(**case)
        if row.speculator is None:
            assert source.unsupported(config) != []
            continue
        assert source.unsupported(config) == []
        assert source.built_by(config) == row.speculator


@pytest.mark.parametrize(("version", "row"), ROWS, ids=named)
def test_a_drafter_is_of_the_row_that_describes_it(
    version: str, row: DrafterType, sources: dict[str, Source]
) -> None:
    for case in cases(row, sources[version]):
        draft = case["draft_model_config"]
        found = drafter_type(
            case["method"],
            draft.architectures,
            model_type=draft.hf_config.model_type,
            mtp_modules=min(
                draft.hf_config.num_nextn_predict_layers, case["num_speculative_tokens"]
            ),
            parallel=case["parallel_drafting"],
            has_head=row.head is Head.HAS,
        )
        assert found is row


@pytest.mark.parametrize(("version", "row"), ROWS, ids=named)
def test_the_patched_vllm_refuses_what_the_row_refuses(
    version: str, row: DrafterType, sources: dict[str, Source]
) -> None:
    """Where the V2 runner has a speculator; it refuses the others for that alone."""
    source = sources[version]
    for case in cases(row, source):
        if row.speculator is not None:
            assert source.config(**case).estimates_acceptance() == row.estimates


@pytest.mark.parametrize(("version", "row"), BUILT, ids=named)
def test_a_row_that_estimates_names_a_speculator_that_asks(
    version: str, row: DrafterType, sources: dict[str, Source]
) -> None:
    reached = sources[version].read(str(row.speculator)).reach("propose")
    assert ("_maybe_predict_acceptance" in reached) == row.estimates


@pytest.mark.parametrize(("version", "row"), BUILT, ids=named)
def test_the_logits_are_those_that_the_row_says(
    version: str, row: DrafterType, sources: dict[str, Source]
) -> None:
    speculator = sources[version].read(str(row.speculator))
    reached = speculator.reach("propose")
    if "_maybe_predict_acceptance" not in reached:
        shown = DraftLogits.NONE
    elif "candidate_sampler" in reached:
        shown = DraftLogits.CANDIDATES
    else:
        shown = DraftLogits.VOCABULARY
    assert shown is row.logits
    assert ("get_draft_top_tokens" in reached) == row.local_argmax


@pytest.mark.parametrize(("version", "row"), BUILT, ids=named)
def test_only_the_speculator_of_a_head_asks_for_one(
    version: str, row: DrafterType, sources: dict[str, Source]
) -> None:
    speculator = sources[version].read(str(row.speculator))
    owner = speculator.defined_by("get_confidence_head")
    assert (owner == row.speculator) == (row.head is not Head.NEVER)


@pytest.mark.parametrize(("version", "row"), BUILT, ids=named)
def test_a_block_is_what_dflash_s_kin_draft_in_one_pass(
    version: str, row: DrafterType, sources: dict[str, Source]
) -> None:
    speculator = sources[version].read(str(row.speculator))
    assert ("DFlashSpeculator" in speculator.bases) == (row.passes is Passes.ONE)


def test_the_source_is_followed_through_calls_and_bases() -> None:
    """The reader itself: what overrides hides, and what ``super()`` brings back."""
    import ast

    from tests.contract.vllm_source import Class

    text = inspect.cleandoc(
        """
        class Child:
            def draft(self): self.mine()
            def again(self): super().draft()
        class Base:
            def propose(self): self.draft()
            def draft(self): self.predict()
            def unused(self): self.other()
        """
    )
    child = Class(tuple(n for n in ast.parse(text).body if isinstance(n, ast.ClassDef)))
    assert child.reach("propose") == {"draft", "mine"}
    assert child.reach("again") == {"predict"}
    assert child.defined_by("propose") == "Base"
