"""Parts of the README that are written from what the package holds.

Rule: such a part stands between two marks, and a test compares it.
"""

from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def between(begin: str, end: str) -> str:
    """What stands between the two marks now."""
    return README.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0]


def write(begin: str, end: str, section: str) -> None:
    """Replace what stands between the two marks.

    Raises:
        ValueError: the README lacks one of them.
    """
    text = README.read_text(encoding="utf-8")
    start = text.index(begin) + len(begin)
    README.write_text(text[:start] + section + text[text.index(end, start) :], encoding="utf-8")
