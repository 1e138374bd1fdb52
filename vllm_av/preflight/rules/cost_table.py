"""The file of ``budget.cost_table_path``: whether it can be read, or written, and whose it is.

Rule: the refusals and their codes are those of the engine, which would end by them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from vllm_av.budget.costs.stored import examine, place
from vllm_av.config.block import BLOCK
from vllm_av.errors import CostTableError
from vllm_av.preflight.facts import Setup
from vllm_av.preflight.reasons import Reason, Weight
from vllm_av.preflight.rules.words import spec_place


def cost_table(setup: Setup) -> Iterator[Reason]:
    """What stands against the file, as far as the setup shows it."""
    yield from about(setup.speculative.get(BLOCK), setup.costs, spec_place(setup, BLOCK))


def about(block: Any, costs: Mapping[str, Any] | None, where: str) -> Iterator[Reason]:
    """The same of a block.

    Args:
        block: perhaps with mistakes, which others tell.
        costs: what the table must say; None where it is not on this machine.
        where: the block stands.
    """
    budget = block.get("budget") if isinstance(block, Mapping) else None
    path = budget.get("cost_table_path") if isinstance(budget, Mapping) else None
    if costs is None or not isinstance(path, str) or not path:
        return
    try:
        examine(place(path), costs)
    except CostTableError as error:
        yield Reason(error.code, Weight.REFUSAL, error.given, error.allowed, where, error.fix)


RULES = (cost_table,)
