"""Lets a scorer go on from what it had learnt, and keeps what it learns.

Rule: one rank reads the file and all ranks are given what it found, so that they start alike; one
rank of one engine writes it.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_av import checkpoint
from vllm_av.errors import Code, StateError
from vllm_av.seams import ranks
from vllm_av.state import samples

if TYPE_CHECKING:
    from vllm_av.config import AdaptiveVerificationConfig
    from vllm_av.scorers.guard import GuardedScorer
    from vllm_av.state.claim import Claim
    from vllm_av.state.file import Arrays

_OF_THE_VERDICT = ("draft_sample_", "fly_", "rejection_sample_", "synthetic_acceptance_")
"""How the names of the settings begin that decide what is accepted."""


def keep(scorer: "GuardedScorer", vllm_config: Any, config: "AdaptiveVerificationConfig") -> None:
    """Load the state of ``scorer`` from ``config.state_file``, and keep it there, if it has one.

    Raises:
        StateError: the scorer keeps no state, or the file cannot be written.
    """
    if config.state_file is None:
        return
    # Not at the head: vLLM loads this module in every process, for everybody.
    from vllm.logger import init_logger

    from vllm_av.scorers.registry import AUTO
    from vllm_av.state import file, keeper

    log = init_logger(f"vllm.{__name__}")
    kind = getattr(scorer.scorer, "state_kind", None)
    if kind is None:
        if config.scorer != AUTO:
            raise _stateless(scorer.name)
        log.warning_once(
            "Adaptive verification: state_file is ignored: auto chose %s, which keeps no state",
            scorer.name,
        )
        return
    path = _place(config.state_file)
    identity: dict[str, Any] = {}
    first = ranks.is_first()
    writes = first and vllm_config.parallel_config.data_parallel_rank == 0
    claim: Claim | None = None
    found: tuple[Arrays | None, list[StateError]] = (None, [])
    if first:
        keeper.close(path)
        identity = identity_of(vllm_config, scorer.name, kind)
        claim, arrays, troubles = _find(path, identity, writes=writes)
        found = arrays, troubles
    arrays, troubles = ranks.from_first(found)
    for trouble in troubles:
        if trouble.code is Code.STATE_WRITE:
            raise trouble
    if arrays is not None:
        try:
            keeper.load(scorer.scorer, arrays)
        except ValueError as error:
            troubles.append(file.other(path, str(error)))
            arrays = None
    if first:
        for trouble in troubles:
            log.warning("Adaptive verification: %s", trouble)
        begins = "starts with nothing learnt" if arrays is None else "goes on from what was learnt"
        log.info("Adaptive verification: %s %s, by %s", scorer.name, begins, path)
    if claim is not None:
        scorer.on_observed = keeper.Keeper(
            scorer.scorer,
            path,
            identity,
            lambda line: log.warning("Adaptive verification: %s", line),
            refused=bool(troubles),
            claim=claim,
        ).tick


def identity_of(vllm_config: Any, scorer: str, kind: str) -> dict[str, Any]:
    """What must be equal for a state to be this server's; JSON, without a machine's folders."""
    spec = vllm_config.speculative_config
    verdict = {
        name: value for name, value in vars(spec).items() if name.startswith(_OF_THE_VERDICT)
    }
    return {
        "target": _model(vllm_config.model_config),
        "drafter": f"{spec.method} {_model(spec.draft_model_config)}",
        "num_speculative_tokens": spec.num_speculative_tokens,
        "verdict": json.dumps(verdict, sort_keys=True, default=str),
        "scorer": scorer,
        "estimator": kind,
    }


def _model(config: Any) -> str:
    """Its name, and a digest of its config and weights, which tells a namesake."""
    place = Path(config.model)
    digest = checkpoint.config_digest(config)
    if place.exists():
        samples.add(place, digest)
    else:  # of a hub, where a commit has a name
        digest.update(str(getattr(config.hf_config, "_commit_hash", None)).encode())
    return f"{checkpoint.name(config.model)} {checkpoint.short(digest)}"


def _place(given: str) -> Path:
    """Where the file is; a link to it stays one."""
    from vllm_av.state import file

    path = Path(given).expanduser().absolute()
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise file.unwritable(path, error) from error


def _find(
    path: Path, identity: dict[str, Any], *, writes: bool
) -> "tuple[Claim | None, Arrays | None, list[StateError]]":
    """The file for this server alone if that is to be had, what is in it, and what is not well."""
    from vllm_av.state import file
    from vllm_av.state.claim import Claim

    troubles: list[StateError] = []
    claim, arrays = None, None
    try:
        claim = Claim(path) if writes else None
    except StateError as error:
        troubles.append(error)
    try:
        arrays = file.read(path, identity)
    except FileNotFoundError:
        pass
    except StateError as error:
        troubles.append(error)
    return claim, arrays, troubles


def _stateless(name: str) -> StateError:
    return StateError(
        Code.STATE_NONE,
        given=f"state_file is set, and the scorer {name!r} keeps no state",
        allowed="a scorer with state_kind, state_tensors() and load_state()",
        fix="remove the key, or choose another scorer",
    )
