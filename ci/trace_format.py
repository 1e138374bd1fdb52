"""``python -m ci.trace_format``: write the table of a trace's columns into docs/trace-format.md.

Rule: the columns stand in vllm_av/replay/columns.py alone; a test compares.
"""

from pathlib import Path

from vllm_av.replay.columns import COLUMNS, Column

PAGE = Path(__file__).resolve().parents[1] / "docs/trace-format.md"
BEGIN, END = "<!-- written by python -m ci.trace_format -->\n", "<!-- end of the columns -->\n"


def table() -> str:
    """A row for each column, in the order of a file."""
    rows = "".join(
        f"| `{column.name}` | {_type(column)} | {'' if column.required else 'yes'} "
        f"| {_range(column)} | {column.meaning} |\n"
        for column in COLUMNS.values()
    )
    return f"| column | type | may lack | range | is |\n|---|---|---|---|---|\n{rows}"


def _type(column: Column) -> str:
    kind = "dictionary&lt;string&gt;" if column.kind == "words" else column.kind
    return kind + (", null" if column.nullable else "")


def _range(column: Column) -> str:
    if column.kind in ("words", "bool"):
        return ""
    # By as much rounding may bring an entropy below 0.
    low = 0.0 if column.kind.startswith("int") or -0.01 < column.low < 0 else column.low
    high = 0.0 if 0 < column.high < 0.01 else column.high
    return f"{low:g} up" if high == float("inf") else f"{low:g} to {high:g}"


def main() -> None:
    """Replace what stands between the two marks."""
    text = PAGE.read_text(encoding="utf-8")
    start = text.index(BEGIN) + len(BEGIN)
    whole = f"{text[:start]}\n{table()}\n{text[text.index(END, start) :]}"
    PAGE.write_text(whole, encoding="utf-8")


if __name__ == "__main__":
    main()
