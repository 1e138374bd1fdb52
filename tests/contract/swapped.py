"""A vLLM of an environment with the sources of some modules swapped for others.

What lies in the environment stays, bytecode included: a folder on ``PYTHONPATH`` gives every
process that starts with it the other sources.
"""

import json
from collections.abc import Mapping
from pathlib import Path

_SITE = '''"""Finds the swapped modules of vLLM before the environment's."""
import json
import sys
from importlib.util import spec_from_file_location
from pathlib import Path

FOLDER = Path(__file__).parent
SWAPPED = json.loads((FOLDER / "swapped.json").read_text())


class Swapped:
    def find_spec(self, name, path=None, target=None):
        stem = name.replace(".", "/")
        for file, package in ((f"{stem}.py", False), (f"{stem}/__init__.py", True)):
            if file in SWAPPED:
                if not SWAPPED[file]:
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)
                below = [f"{entry}/{stem.rpartition('/')[2]}" for entry in path]
                return spec_from_file_location(
                    name,
                    FOLDER / "sources" / file,
                    submodule_search_locations=below if package else None,
                )
        return None


sys.meta_path.insert(0, Swapped())
'''


def write(folder: Path, files: Mapping[str, bytes | None]) -> Path:
    """What to put on ``PYTHONPATH``.

    Args:
        files: path below site-packages -> its source; None: there is no such module.
    """
    for path, content in files.items():
        if content is not None:
            target = folder / "sources" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    listed = {path: content is not None for path, content in files.items()}
    (folder / "swapped.json").write_text(json.dumps(listed))
    (folder / "sitecustomize.py").write_text(_SITE)
    return folder
