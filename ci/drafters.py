"""``python -m ci.drafters``: write what ``vllm-av scorers`` prints of drafters into the README.

Rule: the table stands in vllm_av/drafters.py alone; a test compares.
"""

from ci.readme import write
from vllm_av.scorers.by_drafter import lines

BEGIN, END = "<!-- written by python -m ci.drafters -->\n", "<!-- end of the drafters -->\n"


def section() -> str:
    """What stands between the two marks."""
    text = "".join(f"{line}\n" for line in lines())
    return f"\n```text\n{text}```\n\n"


if __name__ == "__main__":
    write(BEGIN, END, section())
