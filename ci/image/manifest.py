"""The manifest: what was put into an image, for people and programs.

Rule: it says nothing that was not found or done in the run that writes it, and the same run
elsewhere writes the same bytes.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ci.image.base import Base
from ci.image.series import Applied
from ci.image.wheel import Wheel
from vllm_av.patching.mail import Patch
from vllm_av.patching.tree import digest

FORMAT = 1


def manifest(
    base: Base, reference: str, wheel: Wheel, applied: Applied, at: datetime
) -> dict[str, Any]:
    """The manifest of an image.

    Args:
        reference: of the base image, as the build was told, with a digest or without.
    """
    name, _, image_digest = reference.partition("@")
    series = applied.series
    return {
        "format": FORMAT,
        "created": at.isoformat(timespec="seconds"),
        "base": {"name": name, "digest": image_digest or None},
        "vllm": {
            "distribution": base.dist,
            "version": base.version,
            "packages": inside(base),
        },
        "vllm_av": {
            "version": wheel.version,
            "wheel": wheel.name,
            "sha256": wheel.sha256,
            "left_out": ["triton.backends: cpu"] if base.has_cpu_backend else [],
        },
        "series": {
            "version": series.version,
            "groups": list(series.groups),
            "sha256": series.digest,
        },
        "patches": [
            {
                "id": patch.name,
                "sha256": digest(patch.text),
                "title": patch.subject,
                "upstream": patch.trailers.get("Upstream-Status", ""),
                "file": f"{inside(base)}/{patch_file(applied, patch)}",
            }
            for patch in series.patches
        ],
        "files": [
            {"path": path, "before": before, "after": after}
            for path, (before, after) in sorted(applied.changed.items())
        ],
    }


def inside(base: Base) -> str:
    """Where the packages are, seen from inside the image."""
    return f"/{base.site.relative_to(base.root).as_posix()}"


def patch_file(applied: Applied, patch: Patch) -> str:
    """Where the wheel carries a patch, below the packages."""
    return f"vllm_av/_patches/{applied.series.folder.name}/{patch.name}"


def rendered(document: Mapping[str, Any]) -> bytes:
    """A document as the image carries it."""
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
