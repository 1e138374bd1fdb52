"""Where in vLLM the files lie that the rows name (``mla/flashmla.py``), and at which lines.

The lines of each version are looked up by ``ci.source_lines`` in its pinned wheel.

Rule: a place that a row names is in the source.
"""

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

BASES = (
    "v1/attention/backends",
    "v1/attention",
    "model_executor/layers/attention",
    "model_executor/models",
    "models",
    "vllm_flash_attn",
)
"""Where in vLLM a place's file may lie."""


def line(version: str, place: str) -> str:
    """``file.py:number`` for a file and a name in it."""
    return f"{place.partition(':')[0].rpartition('/')[2]}:{_lines(version)[place]}"


def module_names(file: str) -> Iterator[str]:
    """As what a row's file may be imported."""
    for base in BASES:
        yield ".".join(("vllm", *base.split("/"), *file.removesuffix(".py").split("/")))


@cache
def _lines(version: str) -> dict[str, int]:
    text = files("vllm_av.preflight.backends").joinpath("lines", f"{version}.json").read_text()
    found: dict[str, int] = json.loads(text)
    return found
