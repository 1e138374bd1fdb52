"""How a rule words a reason.

Rule: the fix in words and the changes for programs are one.
"""

from collections.abc import Mapping
from typing import Any

from vllm_av.config.block import BLOCK
from vllm_av.config.whole import FLAG
from vllm_av.preflight.facts import Setup
from vllm_av.preflight.reasons import Change, Part, Reason, ReasonCode, Weight

SPEC = "--speculative-config"


def flag(name: str, value: Any = None) -> Change:
    """``--name value``, or away with it."""
    return Change(Part.FLAG, name, value)


def key(name: str, value: Any = None) -> Change:
    """A key of the speculative config."""
    return Change(Part.SPECULATIVE, name, value)


def variable(name: str, value: Any = None) -> Change:
    """A variable of the environment."""
    return Change(Part.ENVIRONMENT, name, value)


def refusal(
    code: ReasonCode,
    *changes: Change,
    asked: str,
    found: str,
    where: str,
    fix: str | None = None,
    source: str | None = None,
    weight: Weight = Weight.REFUSAL,
) -> Reason:
    """A reason; ``fix`` goes after what ``changes`` say, or stands where there are none."""
    said = " and ".join(map(str, changes)) or None
    words = ", ".join(filter(None, (said, fix))) or None
    return Reason(code, weight, asked, found, where, words, source, changes)


def caution(code: ReasonCode, *changes: Change, **words: Any) -> Reason:
    """It runs, and costs or changes something."""
    return refusal(code, *changes, weight=Weight.CAUTION, **words)


def unknown(code: ReasonCode, *changes: Change, **words: Any) -> Reason:
    """It cannot be told here."""
    return refusal(code, *changes, weight=Weight.UNKNOWN, **words)


def spec_place(setup: Setup, name: str) -> str:
    """Where a key of the speculative config stands."""
    place = setup.where.get(f"speculative_config.{name}")
    return place or f"{name} in {setup.place('speculative_config', SPEC)}"


def otherwise(setup: Setup) -> str | None:
    """How vLLM starts all the same, where nothing lets adaptive verification run; None where the
    user has said so already."""
    block = setup.speculative.get(BLOCK)
    if isinstance(block, Mapping) and block.get("on_unsupported") == "fixed_k":
        return None
    off = f'remove "{FLAG}"' + ("" if block is None else f' and "{BLOCK}"')
    if not setup.patched:
        return off  # its config has no such block
    return f'{off}, or set "{BLOCK}.on_unsupported": "fixed_k"'


def switched(setup: Setup, name: str) -> bool:
    """Whether a key of the speculative config is true, as vLLM reads it."""
    value = setup.speculative.get(name)
    if isinstance(value, str):
        return value.strip().lower() in ("true", "1", "yes", "y", "on", "t")
    return value in (True, 1)
