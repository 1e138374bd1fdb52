"""What the offline engine is asked while it records.

Rule: the prompts of this repository's drafters are those that no training ever saw; a greedy answer
is never the same text twice, since its drafts would be counted twice.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_av.errors import Code, TraceError


@dataclass(frozen=True)
class Asked:
    """A prompt.

    Args:
        workload: its name in the trace; None: it has none.
        text: of the user's message, or of the text that is to be continued.
        chat: which of the two.
    """

    workload: str | None
    text: str
    chat: bool

    def tokens(self, tokenizer: Any, again: int) -> list[int]:
        """The prompt's tokens; ``again``: how often it was asked before."""
        text = self.text if again == 0 else f"{self.text}\n\n(Question {again + 1}.)"
        if not self.chat:
            # A text that is continued is asked again from a later line on.
            lines = self.text.splitlines(keepends=True)
            text = "".join(lines[again % max(1, len(lines) // 2) :])
        if self.chat and getattr(tokenizer, "chat_template", None):
            messages = [{"role": "user", "content": text}]
            text = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=False
            )
        found: list[int] = tokenizer.encode(text)
        return found


def workloads() -> tuple[str, ...]:
    """The names of the held-out prompts of this repository's drafters."""
    from vllm_av.training.prompts import WORKLOADS

    return WORKLOADS


def held_out(names: Sequence[str]) -> list[Asked]:
    """The held-out prompts of the workloads ``names``.

    Raises:
        TraceError: ``AV-TRACE-OPTION``: there is no such workload.
        DemoError: ``AV-DEMO-PROMPTS``.
    """
    from vllm_av.training.prompts import WORKLOADS
    from vllm_av.training.prompts import held_out as prompts

    for name in names:
        if name not in WORKLOADS:
            raise TraceError(
                Code.TRACE_OPTION,
                given=f"--workload {name}",
                allowed=f"--workload takes one of {', '.join(WORKLOADS)}",
                fix="choose one of these",
            )
    return [Asked(name, text, name != "code") for name in names for _, text in prompts(name)]


def from_file(path: Path) -> list[Asked]:
    """Prompts of the user's own: one JSON value a line, text or ``{"text", "workload"}``.

    Raises:
        TraceError: ``AV-TRACE-PROMPTS``.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        values = [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        raise _no_prompts(path, str(error)) from error
    asked: list[Asked] = []
    for value in values:
        each = {"text": value} if isinstance(value, str) else value
        good = (
            isinstance(each, dict)
            and isinstance(each.get("text"), str)
            and isinstance(each.get("workload", ""), str)
            and each.keys() <= {"text", "workload"}
        )
        if not good:
            raise _no_prompts(path, f"prompt {len(asked) + 1} is none")
        asked.append(Asked(each.get("workload"), each["text"], chat=True))
    if not asked:
        raise _no_prompts(path, "it is empty")
    return asked


def _no_prompts(path: Path, reason: str) -> TraceError:
    return TraceError(
        Code.TRACE_PROMPTS,
        given=f"{path} holds no prompts: {reason}",
        allowed='one JSON value a line: "text", or {"text": "...", "workload": "name"}',
        fix="correct the file",
    )
