"""From what the user wrote to an :class:`AdaptiveVerificationConfig`, or to what is wrong with it.

Rule: every mistake is found at once and told in the order of the text, each in one line that names
the key, the value, what is allowed and what to do.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from vllm_av.config.fields import GROUPS, Path, allowed, default_of, keys_of, model_at
from vllm_av.config.model import MAX_POSITIONS, ONLINE, POOLED, AdaptiveVerificationConfig
from vllm_av.config.text import shown
from vllm_av.drafters import HEAD_METHODS
from vllm_av.errors import Code, ConfigError
from vllm_av.scorers.registry import AUTO, names

BLOCK = "adaptive_verification_config"
MOST = 100
"""Mistakes that are told; of more it is only said that they are there."""
_HEAD = "confidence_head"
_TABLE = "cost_table_path"
_INTERCEPTS: Path = ("estimator", "initial_intercepts")
_READ_LOGITS = frozenset({ONLINE, POOLED, "max_probability"})
_WITHOUT_ESTIMATOR = frozenset({"confidence_head", "max_probability"})
_CODES = {
    "finite_number": Code.CONFIG_RANGE,
    "greater_than_equal": Code.CONFIG_RANGE,
    "less_than_equal": Code.CONFIG_RANGE,
    "too_long": Code.CONFIG_COUNT,
    "too_short": Code.CONFIG_COUNT,
    "string_too_long": Code.CONFIG_RANGE,
    "string_too_short": Code.CONFIG_RANGE,
    "model_type": Code.CONFIG_OBJECT,
}
"""Pydantic's kind of error -> ours; every other one is of type."""


@dataclass(frozen=True)
class Facts:
    """What stands beside the block; None where it is not known.

    Args:
        num_speculative_tokens: drafts per request and step, K.
        method: vLLM's speculative method.
        has_draft_logits: False under ``use_local_argmax_reduction``.
    """

    num_speculative_tokens: int | None = None
    method: str | None = None
    has_draft_logits: bool = True


@dataclass(frozen=True)
class Verdict:
    """``config`` is None exactly where there are errors; those are in the order of the text."""

    config: AdaptiveVerificationConfig | None
    errors: tuple[ConfigError, ...]

    def require(self) -> AdaptiveVerificationConfig:
        """The config, or its first error, which counts the others.

        Raises:
            ConfigError: with all others as ``others``.
        """
        if self.config is None:
            raise self.errors[0].among(self.errors[1:])
        return self.config


def parse_block(
    block: object,
    *,
    num_speculative_tokens: int | None = None,
    method: str | None = None,
    has_draft_logits: bool = True,
) -> AdaptiveVerificationConfig:
    """Check ``block`` against the keys and against what stands beside it (see :class:`Facts`).

    Raises:
        ConfigError: the first mistake in the order of the text.
    """
    return examine_block(block, Facts(num_speculative_tokens, method, has_draft_logits)).require()


def canonical(config: AdaptiveVerificationConfig) -> dict[str, Any]:
    """Plain JSON with every default filled in; parsing it gives ``config`` again.

    The estimator's numbers are left out beside a scorer that never uses them, and paths where none
    is given.
    """
    block: dict[str, Any] = json.loads(config.model_dump_json())
    for part, path in ((block, "state_file"), (block, "trace"), (block["budget"], _TABLE)):
        if part[path] is None:
            del part[path]
    if config.scorer in _WITHOUT_ESTIMATOR:
        del block["estimator"]
    elif (foreign := _foreign_key(config.scorer)) is not None:
        del block["estimator"][foreign[0]]
    return block


def _foreign_key(scorer: str) -> tuple[str, str] | None:
    """The one of the estimators' keys that is not this scorer's, and whose it is."""
    if scorer == POOLED:
        return "memory", ONLINE
    return ("ridge", POOLED) if scorer in (AUTO, ONLINE) else None


def examine_block(block: object, facts: Facts) -> Verdict:
    """Everything that is wrong with ``block``."""
    if not isinstance(block, Mapping):
        error = ConfigError(
            Code.CONFIG_OBJECT,
            given=f"{BLOCK} is {shown(block)}",
            allowed=f"an object with some of the keys {', '.join(keys_of())}",
            fix="write an object, {} for all defaults, or remove the key",
        )
        return Verdict(None, (error,))
    block = dict(block)
    config = None
    kinds: list[tuple[Path, str]] = []
    readable = _readable(block, (), kinds)
    try:
        config = AdaptiveVerificationConfig.model_validate(readable)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
        kinds += [(_path(detail["type"], detail["loc"]), detail["type"]) for detail in details]
    # A list whose only number is wrong is also too short for pydantic.
    around = {path[:length] for path, _ in kinds for length in range(len(path))}
    kinds = [each for each in kinds if each[0] not in around]
    orders: dict[Path, dict[Any, int]] = {}
    kinds.sort(key=lambda each: _position(block, each[0], orders))
    found = [(path, _translated(kind, path, block)) for path, kind in kinds[: MOST + 1]]
    found += _across(block, facts)
    found.sort(key=lambda each: _position(block, each[0], orders))
    errors = limited([error for _, error in found])
    return Verdict(None if errors else config, errors)


def limited(errors: Sequence[ConfigError]) -> tuple[ConfigError, ...]:
    """The first :data:`MOST` of ``errors``, and one that says so where there are more."""
    if len(errors) <= MOST:
        return tuple(errors)
    more = ConfigError(
        errors[MOST].code,
        given=f"the config has more mistakes than these {MOST}",
        allowed="none",
        fix="correct these, then check again",
    )
    return (*errors[:MOST], more)


def _readable(part: Mapping[Any, Any], path: Path, kinds: list[tuple[Path, str]]) -> dict[Any, Any]:
    """``part`` without what pydantic cannot name, or would take long to; that goes to ``kinds``."""
    kept: dict[Any, Any] = {}
    for key, value in part.items():
        here = (*path, key)
        if isinstance(key, str) and not _is_unicode(key):
            kinds.append((here, "invalid_key"))
        elif here == _INTERCEPTS and isinstance(value, list | tuple) and len(value) > MAX_POSITIONS:
            kinds.append((here, "too_long"))
        elif not path and key in GROUPS and isinstance(value, dict):
            kept[key] = _readable(value, here, kinds)
        else:
            kept[key] = value
    return kept


def _is_unicode(text: str) -> bool:
    """False where half of a surrogate pair stands alone, as JSON's escapes can have it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _path(kind: str, loc: Path) -> Path:
    """Pydantic's place of a mistake, without the words that are no keys."""
    if kind == "invalid_key" and loc[-1:] == ("[key]",):
        return loc[:-1]
    if loc[:2] == _INTERCEPTS and loc[2:3] in (("number",), ("list",)):
        return (*_INTERCEPTS, *loc[3:])
    return loc


def _translated(kind: str, path: Path, block: dict[str, Any]) -> ConfigError:
    """One of pydantic's errors in this project's form."""
    if kind in ("extra_forbidden", "invalid_key"):
        return _unknown_key(path)
    value = _at(block, path)
    name = dotted(path)
    default = default_of(path)
    # Of a whole number that no float holds, pydantic says that it is no number.
    if kind == "float_type" and isinstance(value, int) and not isinstance(value, bool):
        kind = "finite_number"
    code = _CODES.get(kind, Code.CONFIG_TYPE)
    if kind == "literal_error" and isinstance(value, str):
        code = Code.CONFIG_RANGE
    quoted = isinstance(value, str) and code is Code.CONFIG_TYPE
    fix = "write it without quotes" if quoted else "correct the value"
    if quoted and kind in ("float_type", "int_type") and _is_number(value):
        # YAML takes 1e-3, which has no point, for text.
        fix += " (in YAML 0.001 or 1.0e-3)"
    return ConfigError(
        code,
        given=f"{name} is {shown(value)}",
        allowed=allowed(path),
        fix=f"{fix}, or remove the key for the default {shown(default)}",
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _unknown_key(path: Path) -> ConfigError:
    key = path[-1]
    model = model_at(path[:-1])
    known = list(model.model_fields)
    where = dotted(path[:-1])
    home = next((h for h in _homes() if key in h[1].model_fields), None)
    near = (
        get_close_matches(key.replace("-", "_").lower(), known, n=1) if isinstance(key, str) else []
    )
    if home is not None:
        fix = f"move it into {dotted(home[0])}"
    elif near:
        fix = f"write {near[0]}"
    else:
        fix = "remove it"
    return ConfigError(
        Code.CONFIG_KEY,
        given=f"{where} has the unknown key {shown(key)}",
        allowed=f"the keys {', '.join(known)}",
        fix=fix,
    )


def _homes() -> Iterator[tuple[Path, type[BaseModel]]]:
    yield (), AdaptiveVerificationConfig
    yield from (((name,), model) for name, model in GROUPS.items())


def _across(block: dict[str, Any], facts: Facts) -> list[tuple[Path, ConfigError]]:
    """What no key shows by itself. A value of the wrong type was already told."""
    found: list[tuple[Path, ConfigError]] = []
    scorer = block.get("scorer", AUTO)
    estimator = block.get("estimator")
    if isinstance(scorer, str):
        found += [(("scorer",), error) for error in _about_scorer(scorer, facts)]
        if isinstance(estimator, Mapping) and estimator and scorer in _WITHOUT_ESTIMATOR:
            found.append((("estimator",), _unused(scorer, estimator)))
        elif isinstance(estimator, Mapping) and (foreign := _foreign_key(scorer)) is not None:
            key, other = foreign
            if key in estimator:
                path = ("estimator", key)
                found.append((path, _of_another(path, estimator[key], scorer, other)))
        if isinstance(block.get("state_file"), str) and scorer in _WITHOUT_ESTIMATOR:
            found.append((("state_file",), _no_state(scorer, block["state_file"])))
    if isinstance(block.get("trace"), str) and not facts.has_draft_logits:
        found.append((("trace",), _no_features(block["trace"])))
    count = facts.num_speculative_tokens
    intercepts = estimator.get("initial_intercepts") if isinstance(estimator, Mapping) else None
    if count is not None and isinstance(intercepts, list | tuple):
        given = len(intercepts)
        if given != count and 0 < given <= MAX_POSITIONS:
            found.append((_INTERCEPTS, _wrong_count(_INTERCEPTS, given, count)))
    return found


def _about_scorer(scorer: str, facts: Facts) -> Iterator[ConfigError]:
    name = dotted(("scorer",))
    known = [AUTO, *names()] if scorer != AUTO else [AUTO]
    if scorer not in known:
        near = get_close_matches(scorer.replace("-", "_").lower(), known, n=1)
        yield ConfigError(
            Code.CONFIG_SCORER,
            given=f"{name} is {shown(scorer)}",
            allowed=f"one of {', '.join(known)}",
            fix=f"write {near[0]}"
            if near
            else "correct the name, or install the package that brings this scorer",
        )
    headless = facts.method is not None and facts.method not in HEAD_METHODS
    if scorer == _HEAD and headless:
        yield ConfigError(
            Code.CONFIG_METHOD,
            given=f"{name} is {shown(scorer)}, with the method {shown(facts.method)}",
            allowed=f"this scorer with the method {', '.join(sorted(HEAD_METHODS))}: no other "
            "checkpoint can hold a confidence head",
            fix='set "scorer": "auto", which takes the head where there is one',
        )
    reads = scorer in _READ_LOGITS or (scorer == AUTO and headless)
    if reads and not facts.has_draft_logits:
        yield ConfigError(
            Code.CONFIG_METHOD,
            given=f"{name} is {shown(scorer)}, with use_local_argmax_reduction true",
            allowed="this scorer where the drafter makes logits, which that setting spares",
            fix="set use_local_argmax_reduction to false",
        )


def _no_state(scorer: str, file: str) -> ConfigError:
    return ConfigError(
        Code.CONFIG_UNUSED,
        given=f"{dotted(('state_file',))} is {shown(file)}, with the scorer {shown(scorer)}",
        allowed="a scorer that learns, and so has something to keep",
        fix="remove the key, or choose another scorer",
    )


def _no_features(trace: str) -> ConfigError:
    return ConfigError(
        Code.CONFIG_METHOD,
        given=f"{dotted(('trace',))} is {shown(trace)}, with use_local_argmax_reduction true",
        allowed="a trace where the drafter makes logits, which that setting spares",
        fix="set use_local_argmax_reduction to false, or remove the key",
    )


def _unused(scorer: str, estimator: object) -> ConfigError:
    return ConfigError(
        Code.CONFIG_UNUSED,
        given=f"{dotted(('estimator',))} is {shown(estimator)}, with the scorer {shown(scorer)}",
        allowed="no settings of the online estimator beside a scorer that never asks it",
        fix='remove the key, or set "scorer": "online_estimator"',
    )


def _of_another(path: Path, value: object, scorer: str, other: str) -> ConfigError:
    return ConfigError(
        Code.CONFIG_UNUSED,
        given=f"{dotted(path)} is {shown(value)}, with the scorer {shown(scorer)}",
        allowed=f"this key with the scorer {other}, which alone has a use for it",
        fix=f'remove the key, or set "scorer": "{other}"',
    )


def _wrong_count(path: Path, given: int, count: int) -> ConfigError:
    return ConfigError(
        Code.CONFIG_COUNT,
        given=f"{dotted(path)} has {given} number{'' if given == 1 else 's'}",
        allowed=f"one number for all positions, or {count}, which is num_speculative_tokens",
        fix=f"write {count} numbers, or one without brackets",
    )


def dotted(path: Path) -> str:
    """``adaptive_verification_config.estimator.initial_intercepts[2]``."""
    name = BLOCK
    for part in path:
        name += f"[{part}]" if isinstance(part, int) else f".{part}"
    return name


def _at(block: Any, path: Path) -> Any:
    for part in path:
        block = block[part]
    return block


def _position(block: Any, path: Path, orders: dict[Path, dict[Any, int]]) -> tuple[int, ...]:
    """Where in the text ``path`` stands; what is not there comes last.

    ``orders`` keeps each object's order of keys from one call to the next.
    """
    places: list[int] = []
    for depth, part in enumerate(path):
        if isinstance(block, Mapping) and part in block:
            if path[:depth] not in orders:
                orders[path[:depth]] = {key: place for place, key in enumerate(block)}
            places.append(orders[path[:depth]][part])
            block = block[part]
        elif isinstance(block, list | tuple) and isinstance(part, int):
            places.append(part)
            block = block[part]
        else:
            places.append(len(block) if isinstance(block, Mapping) else 0)
            break
    return tuple(places)
