"""``python -m ci.setup``: see :mod:`ci.setup`.

Rule: runs on any Python 3.7 or later, up to the line that replaces it by the fit one.
"""

from __future__ import annotations

import os
import sys

from ci.setup.pythons import VERSION, find


def main() -> int:
    """Find the fit Python, become it, run the steps."""
    version = ".".join(map(str, VERSION))
    path, seen = find(os.environ.get("PYTHON") or None)
    if path is None:
        print(
            f"error: [AV-SETUP-PYTHON] no Python {version} here ({'; '.join(seen)}); "
            f"Python {version}, which the lock is made for; "
            f"install it (Debian: apt-get install python{version} python{version}-venv) "
            f"or name one: make PYTHON=/path/to/python{version}",
            file=sys.stderr,
        )
        return 2
    if sys.version_info[:2] != VERSION:
        os.execv(path, [path, "-m", "ci.setup"])

    from ci.setup.run import run

    return run(python=path)


if __name__ == "__main__":
    sys.exit(main())
