"""``python -m ci.source_lines [TREE VERSION]``: at which lines of vLLM's source the table was read.

The rows name files and names (``flash_attn.py:FlashAttentionBackend``); the lines of each version
are looked up in its pinned wheel, or in the tree of a package ``vllm`` that is as the wheel brought
it, and kept in ``vllm_av/preflight/backends/lines``.

Rule: every place that a row names is in the source; a test compares with the installed vLLM.
"""

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import Path as ZipPath
from zipfile import ZipFile

from vllm_av.patching.wheels import pinned_wheel
from vllm_av.preflight.backends.rows import VERSIONS
from vllm_av.preflight.backends.source import BASES
from vllm_av.preflight.backends.table import places

LINES = Path(__file__).resolve().parents[1] / "vllm_av/preflight/backends/lines"


def main() -> None:
    """Write the lines of one version from a tree, or of all from their wheels."""
    if len(sys.argv) == 3:
        _write(sys.argv[2], Path(sys.argv[1]))
        return
    for version in VERSIONS:
        with ZipFile(pinned_wheel(version, say=print)) as wheel:
            _write(version, ZipPath(wheel, "vllm/"))


def _write(version: str, tree: Path | ZipPath) -> None:
    text = json.dumps(lines(tree, version), indent=1, sort_keys=True)
    (LINES / f"{version}.json").write_text(text + "\n")


def lines(tree: Path | ZipPath, version: str) -> dict[str, int]:
    """Place -> line, for every place that the table of a version names."""
    found: dict[str, int] = {}
    by_file: dict[str, dict[str, int]] = {}
    for place in sorted(places(version)):
        file, _, name = place.partition(":")
        if file not in by_file:
            by_file[file] = dict(_names(ast.parse(_read(tree, file)).body, ""))
        found[place] = by_file[file][name]
    return found


def _read(tree: Path | ZipPath, file: str) -> str:
    for base in BASES:
        path = tree / base / file
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise FileNotFoundError(file)


def _names(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, int]]:
    for node in body:
        names = []
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        for name in names:
            yield prefix + name, node.lineno
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                yield from _names(node.body, f"{prefix}{name}.")


if __name__ == "__main__":
    main()
