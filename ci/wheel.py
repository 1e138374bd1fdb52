"""A build hook: a wheel carries the patch series inside the package.

A static ``force-include`` would also copy the series beside an editable install, where it would
go stale: there the checkout's own ``patches`` is read.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Patches(BuildHookInterface[Any]):
    """Puts ``patches`` at ``vllm_av/_patches``, without what tools leave beside the sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "standard":
            return
        root = Path(self.root, "patches")
        for path in sorted(root.rglob("*")):
            below = path.relative_to(root)
            left = any(part.startswith(".") or part == "__pycache__" for part in below.parts)
            if path.is_file() and not left:
                build_data["force_include"][str(path)] = f"vllm_av/_patches/{below.as_posix()}"
