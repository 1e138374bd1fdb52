"""One line that says why no image is made: as vllm_av's own errors, before vllm_av is there."""

from typing import Literal

Code = Literal[
    "AV-IMAGE-BASE",
    "AV-IMAGE-LABELS",
    "AV-IMAGE-NEEDS",
    "AV-IMAGE-PINS",
    "AV-IMAGE-WHEEL",
    "AV-IMAGE-WRITE",
]
"""What each means is said in :class:`vllm_av.errors.Code`."""


class Refusal(Exception):
    """What was found, what is right, what to do now."""

    def __init__(self, code: Code, given: str, allowed: str, fix: str) -> None:
        super().__init__(code, given, allowed, fix)
        self.code = code
        self.given = given
        self.allowed = allowed
        self.fix = fix

    def __str__(self) -> str:
        return " ".join(f"[{self.code}] {self.given}; {self.allowed}; {self.fix}".split())


def not_written(error: OSError, left: str) -> Refusal:
    """What a failed write becomes. ``left`` says what the image is now."""
    return Refusal(
        "AV-IMAGE-WRITE",
        f"cannot read or write {error.filename} ({error.strerror}); {left}",
        "an image whose own user may write its packages, and room for them",
        "mend that and build again",
    )
