"""Each drafter type as vLLM's own config describes it: the check knows it, and finds no fault."""

from pathlib import Path

import pytest

from tests.engine.drafters import TYPES
from tests.engine.harness import engine_arguments, speculation
from tests.engine.sampling import TINY_STEPS, tiny_changes
from vllm_av.drafters import TYPES as TABLE
from vllm_av.drafters import Head
from vllm_av.preflight.backends.table import TableCapabilities
from vllm_av.preflight.engine import setup_of
from vllm_av.preflight.facts import Gpu
from vllm_av.preflight.reasons import Verdict
from vllm_av.preflight.rules import judge

ROWS = {row.name: row for row in TABLE}


@pytest.mark.parametrize("name", TYPES)
def test_it_is_known_and_judged_as_it_is(name: str, tmp_path: Path) -> None:
    from vllm.engine.arg_utils import EngineArgs

    row, pair = ROWS[TYPES[name].row], TYPES[name].make(tmp_path)
    spec = speculation(pair.draft, TYPES[name].method, True, TINY_STEPS)
    whole = engine_arguments(pair.target, spec, **tiny_changes())
    config = EngineArgs(**whole).create_engine_config()
    assert config.speculative_config.enable_adaptive_verification
    setup = setup_of(config, Gpu("cpu", "cpu", 0, 0))
    assert setup.draft.type_name == row.name
    assert setup.draft.num_speculative_tokens == TINY_STEPS
    assert setup.draft.has_head is (row.head is Head.HAS)
    judgement = judge(setup, TableCapabilities(setup.vllm))
    assert judgement.verdict is Verdict.YES, judgement.reasons
    assert judgement.scorer.name == (
        "confidence_head" if row.head is Head.HAS else "online_estimator"
    )
    chosen = {answer.chosen.name for answer in judgement.layers if answer.chosen}
    assert chosen == {"CPU_ATTN"}
