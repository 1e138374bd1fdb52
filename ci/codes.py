"""``python -m ci.codes``: write every code with its meaning into the README and ``docs/check.md``.

Rule: the meanings stand in vllm_av/errors.py and vllm_av/preflight/reasons.py alone; a test
compares.
"""

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- written by python -m ci.codes -->\n", "<!-- end -->\n"
PAGES = (
    ("README.md", "vllm_av/errors.py", "Code"),
    ("docs/check.md", "vllm_av/preflight/reasons.py", "ReasonCode"),
)
"""A page, and the file and the class whose codes it lists."""


def table(source: str, name: str = "Code") -> str:
    """The table, from the source of the class ``name``."""
    rows = "".join(f"| `{code}` | {meaning} |\n" for code, meaning in _codes(source, name))
    return f"| code | means |\n|---|---|\n{rows}"


def _codes(source: str, name: str) -> Iterator[tuple[str, str]]:
    classes = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    body = next(node.body for node in classes if node.name == name)
    for code, meaning in pairwise(body):
        if isinstance(code, ast.Assign) and isinstance(meaning, ast.Expr):
            text = " ".join(str(ast.literal_eval(meaning.value)).split()).replace("``", "`")
            yield str(ast.literal_eval(code.value)), text


def main() -> None:
    """Replace what stands between the two marks of each page."""
    for page, source, name in PAGES:
        file = ROOT / page
        before, _, rest = file.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        text = table((ROOT / source).read_text(), name)
        file.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


if __name__ == "__main__":
    main()
