"""``.venv/bin/python -m ci.hybrid``: see :mod:`ci.hybrid`."""

import sys

from ci.hybrid.steps import STEPS, place
from ci.setup.run import bring

if __name__ == "__main__":
    sys.exit(bring(place(), STEPS))
