"""A build hook: a wheel carries the patch series inside the package.

A static ``force-include`` would also copy the series beside an editable install, where it would
go stale: there the checkout's own ``patches`` is read.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Patches(BuildHookInterface[Any]):
    """Puts ``patches`` at ``vllm_av/_patches``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":
            build_data["force_include"][str(Path(self.root, "patches"))] = "vllm_av/_patches"
