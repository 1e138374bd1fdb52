"""Questions and answers as JSON, between the process that asks and the one that has the classes.

Rule: what comes back equals what went in, to the type.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from vllm_av.preflight.capabilities import Candidate, LayerAnswer
from vllm_av.preflight.facts import DraftFacts, Gpu, LayerGroup, LayerKind, ModelFacts, Setup


def plain(value: Any) -> Any:
    """A dataclass and whatever it holds, as JSON has it; what JSON has not, as text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def to_setup(given: Mapping[str, Any]) -> Setup:
    """The inverse of :func:`plain` for a question."""
    target = dict(given["target"])
    target["groups"] = tuple(to_group(each) for each in target["groups"])
    gpu = given["gpu"]
    return Setup(
        **{
            **given,
            "target": ModelFacts(**target),
            "draft": DraftFacts(**given["draft"]),
            "gpu": None if gpu is None else Gpu(**gpu),
        }
    )


def to_group(given: Mapping[str, Any]) -> LayerGroup:
    """The same for layers."""
    return LayerGroup(**{**given, "kind": LayerKind(given["kind"])})


def to_answer(given: Mapping[str, Any]) -> LayerAnswer:
    """The same for an answer."""
    return LayerAnswer(
        group=to_group(given["group"]),
        chosen=to_candidate(given["chosen"]),
        candidates=tuple(map(_candidate, given["candidates"])),
        without=to_candidate(given["without"]),
    )


def to_candidate(given: Mapping[str, Any] | None) -> Candidate | None:
    """The same for a candidate, or for none."""
    return None if given is None else _candidate(given)


def _candidate(given: Mapping[str, Any]) -> Candidate:
    return Candidate(**{**given, "invalid": tuple(given["invalid"])})
