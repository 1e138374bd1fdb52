"""``python -m ci.drafters``: write what ``vllm-av scorers`` prints of drafters into the README.

Rule: the table stands in vllm_av/drafters.py alone; a test compares.
"""

from pathlib import Path

from vllm_av.scorers.by_drafter import lines

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- written by python -m ci.drafters -->\n", "<!-- end of the drafters -->\n"


def section() -> str:
    """What stands between the two marks."""
    text = "".join(f"{line}\n" for line in lines())
    return f"\n```text\n{text}```\n\n"


def main() -> None:
    """Replace what stands between the two marks.

    Raises:
        ValueError: the README lacks one of them.
    """
    readme = ROOT / "README.md"
    text = readme.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    readme.write_text(text[:begin] + section() + text[end:])


if __name__ == "__main__":
    main()
