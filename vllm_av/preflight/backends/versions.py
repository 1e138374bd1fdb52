"""Of which versions of vLLM there is a table, and which table stands for another version.

Rule: the newest table that is not newer than what is asked about.
"""

VERSIONS = ("0.33.0", "0.32.0")
"""Of vLLM, the newest first."""


def nearest(version: str) -> str:
    """The version whose table stands for that one; for one older than all, the oldest."""
    older = [each for each in VERSIONS if _numbers(each) <= _numbers(version)]
    return older[0] if older else VERSIONS[-1]


def is_old(version: str) -> bool:
    """Whether the rules of 0.32.0 hold."""
    return nearest(version) == "0.32.0"


def _numbers(version: str) -> tuple[int, ...]:
    numbers = []
    for part in version.split("+")[0].split("."):
        digits = ""
        for character in part:
            if not character.isdigit():
                break
            digits += character
        numbers.append(int(digits or 0))
    return tuple(numbers)
