"""Numbers and sentences as a report writes them.

Rule: what is not known is a dash, never NaN; a minus is a minus sign.
"""

import math
from collections.abc import Sequence

NOTHING = "–"


def number(value: float, decimals: int = 3) -> str:
    """A fixed number of decimals; large numbers by their powers."""
    if not math.isfinite(value):
        return NOTHING
    found = f"{value:.{decimals}f}" if abs(value) < 1e4 else f"{value:.2e}"
    if found.strip("-0.") == "":
        found = found.lstrip("-")
    return found.replace("-", "−")


def count(value: int) -> str:
    return f"{value:,}"


def share(value: float) -> str:
    """In percent."""
    return f"{number(100.0 * value, 1)}%" if math.isfinite(value) else NOTHING


def difference(value: float, decimals: int = 4) -> str:
    """With its sign."""
    found = number(value, decimals)
    return f"+{found}" if math.isfinite(value) and value > 0 and found.strip("0.") else found


def joined(parts: Sequence[str], last: str = "and") -> str:
    """``a, b and c``."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} {last} {parts[-1]}"
