"""The rows of the table, one file a family of backends.

Rule: each row was read from vLLM's source; the contract tests ask vLLM's classes the same.
"""

from vllm_av.preflight.backends.row import Row
from vllm_av.preflight.backends.rows import (
    composite,
    dense,
    flash,
    flashinfer,
    mla,
    own,
    rocm,
    sparse,
    stateful,
)
from vllm_av.preflight.backends.versions import is_old

UNNAMEABLE = frozenset(
    row.name for family in (stateful, own) for old in (False, True) for row in family.rows(old)
)
"""What no option can name for attention layers: the model names it, or nothing does."""


def rows(version: str) -> dict[str, Row]:
    """Every backend of that version, by its name."""
    old = is_old(version)
    families = (flash, flashinfer, dense, composite, mla, sparse, rocm, stateful, own)
    return {row.name: row for family in families for row in family.rows(old)}
