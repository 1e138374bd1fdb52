"""Folders of models as the check reads them: ``config.json`` and a list of tensors, no weights.

The configs are those of ``tests/configs``: published models, by their values, not their files.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import vllm_av

ROOT = Path(vllm_av.__file__).parents[1]
CARRIED = ROOT / "vllm_av/data"
"""The drafters of this package, of SmolLM2's vocabulary."""
CONFIGS = ROOT / "tests/configs"

TENSORS = {
    "llama-3-8b-eagle": ["fc.weight", "layers.0.mlp.up_proj.weight"],
    "llama-3.1-8b-eagle3": ["fc.weight", "midlayer.mlp.up_proj.weight", "d2t", "t2d"],
    "qwen3-8b-dspark-block7": ["layers.0.mlp.up_proj.weight", "markov_head.markov_w1.weight"],
    "qwen3-8b-xpress": ["layers.0.mlp.up_proj.weight"],
}
"""Of drafters; none of these has a confidence head or an output head."""


def published(name: str) -> dict[str, Any]:
    """The config of that model."""
    found: dict[str, Any] = json.loads((CONFIGS / name / "config.json").read_text())
    return found


def write(folder: Path, name: str, *, tensors: Iterable[str] | None = (), **changes: Any) -> str:
    """A folder for that model.

    Args:
        folder: where.
        name: of ``tests/configs``.
        tensors: beside those above; None for no list of them.
        changes: to the config.
    """
    here = folder / name
    here.mkdir(exist_ok=True)
    config = published(name) | changes
    (here / "config.json").write_text(json.dumps(config, indent=2))
    index = here / "model.safetensors.index.json"
    if tensors is None:
        index.unlink(missing_ok=True)
    else:
        names = [*TENSORS.get(name, ["model.embed_tokens.weight"]), *tensors]
        weights = dict.fromkeys(names, "model-00001-of-00001.safetensors")
        index.write_text(json.dumps({"metadata": {}, "weight_map": weights}))
    return str(here)
