"""A fix, done: the changes that a reason proposes, made to the question that it was given for."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from vllm_av.preflight.flags import parse
from vllm_av.preflight.question import Question
from vllm_av.preflight.reasons import Change, Part


def applied(question: Question, changes: Iterable[Change]) -> Question:
    """The question as the fix would have it."""
    for change in changes:
        if change.part is Part.ENVIRONMENT:
            kept = {k: v for k, v in question.environment.items() if k != change.name}
            new = {} if change.value is None else {change.name: str(change.value)}
            question = replace(question, environment=kept | new)
        elif change.part is Part.SPECULATIVE:
            name = f"speculative-config.{change.name}"
            question = _flag(question, name, change.value)
        else:
            question = _flag(question, change.name, change.value)
    return question


def _flag(question: Question, name: str, value: Any) -> Question:
    flags = parse(question.args)
    top, *keys = name.split(".")
    args = [word for each in flags.given if each.name != top for word in each.words]
    if keys:
        value = _changed(flags.get(top.replace("-", "_"), {}), keys, value)
        value = value or None
    if value is not None:
        args += [f"--{top}", value if isinstance(value, str) else json.dumps(value)]
    return replace(question, args=tuple(args))


def _changed(whole: dict[str, Any], keys: list[str], value: Any) -> dict[str, Any]:
    key, *deeper = keys
    if deeper:
        value = _changed(whole.get(key, {}), deeper, value)
    kept = {name: each for name, each in whole.items() if name != key}
    return kept if value is None else kept | {key: value}
