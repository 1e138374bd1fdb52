"""``python -m ci.codes``: write every error code with its meaning into the README.

Rule: the meanings stand in vllm_av/errors.py alone; a test compares.
"""

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- written by python -m ci.codes -->\n", "<!-- end -->\n"


def table(source: str) -> str:
    """The table, from the source of ``vllm_av/errors.py``."""
    rows = "".join(f"| `{code}` | {meaning} |\n" for code, meaning in _codes(source))
    return f"| code | means |\n|---|---|\n{rows}"


def _codes(source: str) -> Iterator[tuple[str, str]]:
    classes = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    body = next(node.body for node in classes if node.name == "Code")
    for code, meaning in pairwise(body):
        if isinstance(code, ast.Assign) and isinstance(meaning, ast.Expr):
            text = " ".join(str(ast.literal_eval(meaning.value)).split()).replace("``", "`")
            yield str(ast.literal_eval(code.value)), text


def main() -> None:
    """Replace what stands between the two marks."""
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    text = table((ROOT / "vllm_av/errors.py").read_text())
    readme.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


if __name__ == "__main__":
    main()
