"""The EAGLE head that the package carries (see its PROVENANCE.md)."""

from importlib.resources import files
from pathlib import Path


def eagle() -> Path:
    """Folder of the head, as ``"model"`` in ``--speculative-config`` wants it."""
    return Path(str(files("vllm_av").joinpath("data", "smollm2-eagle")))
