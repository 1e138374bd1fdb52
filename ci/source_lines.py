"""``python -m ci.source_lines``: at which lines of vLLM's source the table was read.

The rows name files and names (``flash_attn.py:FlashAttentionBackend``); the lines of each version
are looked up in its pinned wheel and kept in ``vllm_av/preflight/backends/lines``.

Rule: every place that a row names is in the source; a test compares with the installed vLLM.
"""

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from vllm_av.patching.tree import wheel_source
from vllm_av.patching.wheels import pinned_wheel
from vllm_av.preflight.backends.source import BASES
from vllm_av.preflight.backends.table import places
from vllm_av.preflight.backends.versions import VERSIONS

LINES = Path(__file__).resolve().parents[1] / "vllm_av/preflight/backends/lines"

Read = Callable[[str], bytes | None]
"""A file of a wheel, None where it has no such."""


def main() -> None:
    """Write the lines of every version."""
    for version in VERSIONS:
        found = lines(wheel_source(pinned_wheel(version, say=print)).read, version)
        text = json.dumps(found, indent=1, sort_keys=True)
        (LINES / f"{version}.json").write_text(text + "\n")


def lines(read: Read, version: str) -> dict[str, int]:
    """Place -> line, for every place that the table of a version names."""
    found: dict[str, int] = {}
    by_file: dict[str, dict[str, int]] = {}
    for place in sorted(places(version)):
        file, _, name = place.partition(":")
        if file not in by_file:
            by_file[file] = dict(_names(ast.parse(_source(read, file)).body, ""))
        found[place] = by_file[file][name]
    return found


def _source(read: Read, file: str) -> bytes:
    for base in BASES:
        text = read(f"vllm/{base}/{file}")
        if text is not None:
            return text
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
