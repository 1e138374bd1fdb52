"""The columns of a trace, version 1: names, types, ranges.

Rule: what the writer writes, what the reader demands and what docs/trace-format.md says come from
this table.
"""

from dataclasses import dataclass
from typing import Literal

VERSION: Literal[1] = 1
METADATA_KEY = b"vllm_av.trace"
MAX_POSITIONS = 1024
"""Draft positions: more than any drafter makes, and few enough for int16."""
CLAMP = 40.0
"""Log-odds lie within plus and minus this."""
LARGEST = 1e4
"""Other features lie within this: a margin would be infinite where one token has all the mass."""

Kind = Literal["int64", "int16", "float32", "bool", "words"]


@dataclass(frozen=True)
class Column:
    """One column.

    Args:
        name: as in the file.
        kind: its type in the file; ``words`` is ``dictionary<string>``. Other widths are read too.
        meaning: for the documentation.
        required: whether a trace without it is none.
        nullable: whether single rows may lack it.
        feature: whether it describes the drafter's distribution, and is not finite where that is
            none.
        low, high: the range of the values that are finite.
    """

    name: str
    kind: Kind
    meaning: str
    required: bool = False
    nullable: bool = False
    feature: bool = False
    low: float = float("-inf")
    high: float = float("inf")


def _feature(
    name: str, meaning: str, low: float, high: float = LARGEST, required: bool = False
) -> Column:
    return Column(name, "float32", meaning, required, feature=True, low=low, high=high)


def _probability(name: str, meaning: str) -> Column:
    return Column(name, "float32", meaning, nullable=True, low=0.0, high=1.0)


_SCALED = "the same after temperature (0 counts as 1)"
_ROUNDING = 1e-3  # of float32, by which an entropy may fall below 0

COLUMNS = {
    column.name: column
    for column in (
        Column("step", "int64", "decode step in which the target graded it; never falls", True),
        Column("request", "int64", "number of the request, in order of appearance", True),
        Column("position", "int16", "draft position, from 0", True, low=0, high=MAX_POSITIONS - 1),
        Column("temperature", "float32", "of the request", True, low=0.0),
        Column("verified", "bool", "the target saw it", True),
        Column("accepted", "bool", "the target accepted it, and so all before it", True),
        _feature(
            "log_odds",
            "log-odds of the drafter's top token, as if the temperature were 1",
            -CLAMP,
            CLAMP,
            required=True,
        ),
        _feature("log_odds_scaled", _SCALED, -CLAMP, CLAMP),
        _feature("entropy", "of the drafter's distribution at temperature 1, in nats", -_ROUNDING),
        _feature("entropy_scaled", _SCALED, -_ROUNDING),
        _feature("margin", "log q of the best minus that of the second-best token", -_ROUNDING),
        _feature("margin_scaled", _SCALED, -_ROUNDING),
        _feature(
            "log_q_drawn",
            "log q, after temperature (0 counts as 1), of the token that was drawn",
            -LARGEST,
            _ROUNDING,
        ),
        _probability("head", "the confidence head's probability; null where there is no head"),
        _probability("confidence", "what the scorer in force said; null where it said nothing"),
        Column(
            "masked",
            "words",
            "null where the row may teach, else what the target applied that the drafter does not "
            "know, words joined by +",
            nullable=True,
        ),
        Column("workload", "words", "a name that the recorder was given", nullable=True),
    )
}
"""Name -> column, in the order of the file."""
