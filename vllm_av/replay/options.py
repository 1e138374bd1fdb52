"""What a user asks of a replay: which scorer, with which settings.

    --scorer online_estimator --set estimator.damping=20

Rule: settings pass the same check as the config of serving (:mod:`vllm_av.config`), so every
mistake is one line with a code, and a setting that the scorer never asks is refused here too.
"""

import json
from collections.abc import Sequence
from typing import Any

from vllm_av.config.block import parse_block
from vllm_av.config.model import EstimatorConfig
from vllm_av.config.text import shown
from vllm_av.drafters import TYPES, DrafterType, drafter_type
from vllm_av.errors import Code, TraceError
from vllm_av.estimator.settings import EstimatorSettings
from vllm_av.replay.learners import LEARNERS
from vllm_av.replay.replay import Learner
from vllm_av.replay.trace import Trace
from vllm_av.scorers.registry import names


def chosen(scorer: str, assignments: Sequence[str], trace: Trace) -> Learner:
    """The learner that is asked for.

    It starts where serving does that starts cold: at the settings, else at the start values of the
    drafter's type, if the trace names that or the method.

    Args:
        scorer: its name.
        assignments: ``estimator.damping=20``; the value is JSON, or else a word.
        trace: that is replayed.

    Raises:
        TraceError: ``AV-REPLAY-SCORER``, ``AV-REPLAY-OPTION``.
        ConfigError: a setting is unknown, out of its range or unused.
    """
    if scorer not in LEARNERS:
        raise _not_replayable(scorer)
    return LEARNERS[scorer](_settings(scorer, assignments, trace), trace)


def _settings(scorer: str, assignments: Sequence[str], trace: Trace) -> EstimatorSettings:
    block: dict[str, Any] = {"scorer": scorer} if scorer in names() else {}
    for assignment in assignments:
        _assign(block, assignment)
    config = parse_block(block, num_speculative_tokens=trace.info.num_speculative_tokens)
    # vLLM's own estimator starts from one pair of numbers whatever drafts.
    row = _type(trace) if scorer in names() else None
    return config.estimator.settings(scorer, row.start if row else None)


def _type(trace: Trace) -> DrafterType | None:
    """The drafter's: the one that a recording names, which knew the checkpoint; else the method's.

    A method has several types, which only the checkpoint tells apart.
    """
    said, method = trace.info.drafter, trace.info.method
    named = (row for row in TYPES if said in (row.title, row.name))
    return next(named, drafter_type(method, has_head=trace.has("head")) if method else None)


def _assign(block: dict[str, Any], assignment: str) -> None:
    path, equals, text = assignment.partition("=")
    *parents, key = path.strip().split(".")
    if not equals or not key or not parents:
        known = equals and key in EstimatorConfig.model_fields
        raise TraceError(
            Code.REPLAY_OPTION,
            given=f"--set is given {shown(assignment)}",
            allowed="estimator.KEY=VALUE, as in estimator.damping=20: nothing else of the block "
            "has a use in a replay",
            fix=f"write estimator.{key}"
            if known
            else "write it so, or leave it out; "
            "`vllm-av config schema` lists the keys; --scorer names the scorer",
        )
    for parent in parents:
        inner = block.setdefault(parent, {})
        if not isinstance(inner, dict):
            inner = block[parent] = {}
        block = inner
    try:
        block[key] = json.loads(text)
    except RecursionError as error:
        raise TraceError(
            Code.REPLAY_OPTION,
            given=f"--set is given {shown(assignment)}, which is nested too deeply",
            allowed="a number, or a list of numbers",
            fix="correct it",
        ) from error
    except ValueError:
        block[key] = text


def _not_replayable(scorer: str) -> TraceError:
    allowed = f"one of {', '.join(LEARNERS)}"
    if scorer in names():
        return TraceError(
            Code.REPLAY_SCORER,
            given=f"the scorer {shown(scorer)} is of another package and reads the drafter's "
            "logits, which no trace holds",
            allowed=allowed,
            fix="compare by the column `confidence` of a trace that was recorded under it: "
            "--scorer recorded",
        )
    return TraceError(
        Code.REPLAY_SCORER,
        given=f"no scorer that can be replayed has the name {shown(scorer)}",
        allowed=allowed,
        fix="correct the name",
    )
