"""What tells one checkpoint from another: its name, and digests that a namesake does not share.

Rule: the same wherever the checkpoint lies; no machine's folder is in it.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Protocol


class Digest(Protocol):
    """Of :mod:`hashlib`."""

    def update(self, data: bytes, /) -> None:
        """Add ``data``."""

    def hexdigest(self) -> str:
        """Of all that was added."""


def config_digest(config: Any) -> Digest:
    """Of the config of a vLLM ``ModelConfig``, without what only says who wrote it."""
    own = {
        key: value
        for key, value in config.hf_config.to_dict().items()
        if not key.startswith("_") and key != "transformers_version"
    }
    return hashlib.sha256(json.dumps(own, sort_keys=True, default=str).encode())


def short(digest: Digest) -> str:
    """As it is written down."""
    return digest.hexdigest()[:12]


def name(model: str) -> str:
    """Of a model as the user names it, the last folder's or the hub's."""
    place = Path(model)
    return place.name if place.is_absolute() or place.exists() else model
