"""What is installed, read from metadata and never imported.

Rule: one distribution with broken metadata hides no other; it is reported itself.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path


@dataclass(frozen=True)
class Plugin:
    """An entry point: who brings it, and what would be loaded."""

    group: str
    name: str
    value: str
    dist: str


@dataclass(frozen=True)
class Dist:
    """One distribution. ``name`` is in normal form; ``version`` is "" where it is broken."""

    name: str
    version: str
    location: Path
    plugins: tuple[Plugin, ...] = ()
    installer: str = ""
    """As it calls itself; "" where it does not say."""


@dataclass(frozen=True)
class Installed:
    """Every distribution on a path, the first of each name, and the folders that are broken."""

    dists: dict[str, Dist]
    broken: tuple[str, ...]

    def version(self, name: str) -> str | None:
        """The version of ``name``; None where it is not installed."""
        dist = self.dists.get(name)
        return dist.version if dist else None

    def plugins(self, prefix: str) -> list[Plugin]:
        """The entry points of the groups that start so, sorted."""
        every = (plugin for dist in self.dists.values() for plugin in dist.plugins)
        found = [plugin for plugin in every if plugin.group.startswith(prefix)]
        return sorted(found, key=lambda p: (p.group, p.name, p.dist))


def scan(path: Sequence[str] | None = None) -> Installed:
    """Look through ``path`` (default: this interpreter's)."""
    found: dict[str, Dist] = {}
    broken = []
    for raw in distributions(path=list(path)) if path is not None else distributions():
        dist = _read(raw)
        if dist is None:
            broken.append(_folder(raw))
        else:
            found.setdefault(dist.name, dist)
    return Installed(found, tuple(sorted(broken)))


def _read(raw: Distribution) -> Dist | None:
    # A killed installer leaves metadata without a name, or entry points cut off in a line.
    try:
        # Of a key that is not there Python 3.12 warns, and a later one will raise.
        if not {"Name", "Version"} <= set(raw.metadata):
            return None
        name, version = raw.metadata["Name"], raw.metadata["Version"]
        if not name or not version:
            return None
        normal = re.sub(r"[-_.]+", "-", name).lower()
        plugins = tuple(Plugin(e.group, e.name, e.value, normal) for e in raw.entry_points)
        installer = (raw.read_text("INSTALLER") or "").strip()
        place = Path(str(raw.locate_file(""))).resolve()
        return Dist(normal, version, place, plugins, installer)
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _folder(raw: Distribution) -> str:
    return str(getattr(raw, "_path", "a distribution without a folder"))
