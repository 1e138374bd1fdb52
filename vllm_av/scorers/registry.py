"""The scorers by name: those of this package, and those that other packages bring.

A package brings one by an entry point of the group ``vllm_av.scorers``: its name is the scorer's,
its value a class (see :mod:`vllm_av.scorers.base`).

Rule: a scorer is imported when it is chosen and not before, so that nobody pays for, or fails
because of, one that he does not use.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from vllm_av.errors import Code, ScorerError, told

GROUP = "vllm_av.scorers"
AUTO = "auto"
"""The name that stands for the choice of :mod:`vllm_av.scorers.select`; no scorer has it."""
OURS = "vllm_av"


@dataclass(frozen=True)
class Source:
    """One scorer, not yet imported.

    Args:
        name: what the user writes.
        origin: the distribution and its version.
        summary: the distribution's own line about itself; None for a scorer of this package.
        load: imports the class.
    """

    name: str
    origin: str
    summary: str | None
    load: Callable[[], Any]


_built_in: dict[str, Source] = {}


def register(name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Let the decorated function, which imports and returns the class, stand for ``name``."""

    def decorate(load: Callable[[], Any]) -> Callable[[], Any]:
        if name in _built_in or name == AUTO:
            raise ScorerError(
                Code.SCORER_DUPLICATE,
                given=f"a second scorer was registered as {name!r}",
                allowed="one scorer for each name",
                fix="give it another name",
            )
        _built_in[name] = Source(name, OURS, None, load)
        return load

    return decorate


@register("confidence_head")
def _confidence_head() -> Any:
    from vllm_av.scorers.confidence_head import ConfidenceHead

    return ConfidenceHead


@register("online_estimator")
def _online_estimator() -> Any:
    from vllm_av.scorers.online_estimator import OnlineEstimatorScorer

    return OnlineEstimatorScorer


@register("pooled_estimator")
def _pooled_estimator() -> Any:
    from vllm_av.scorers.pooled_estimator import PooledEstimatorScorer

    return PooledEstimatorScorer


@register("max_probability")
def _max_probability() -> Any:
    from vllm_av.scorers.max_probability import MaxProbability

    return MaxProbability


def sources() -> list[Source]:
    """Every scorer, this package's first; a name that two bring is there twice."""
    try:
        points = [(point, point.dist) for point in entry_points(group=GROUP)]
        others = [
            Source(
                point.name,
                f"{dist.name} {dist.version}" if dist else "an unknown distribution",
                dist.metadata["Summary"] if dist else None,
                point.load,
            )
            for point, dist in points
        ]
    except Exception as error:
        raise ScorerError(
            Code.SCORER_BROKEN,
            given=f"the entry points {GROUP} cannot be read "
            f"({type(error).__name__}: {told(error)})",
            allowed="distributions with readable metadata",
            fix="`vllm-av doctor` shows which one is broken",
        ) from error
    return [*_built_in.values(), *sorted(others, key=lambda source: (source.name, source.origin))]


def names() -> list[str]:
    """What a user may write for ``scorer``, beside ``auto``; sorted."""
    return sorted({source.name for source in sources()})


def find(name: str) -> Source:
    """The scorer ``name``, not yet imported.

    Raises:
        ScorerError: ``AV-SCORER-UNKNOWN``; ``AV-SCORER-DUPLICATE`` where two packages bring it.
    """
    found = [source for source in sources() if source.name == name]
    if not found:
        raise ScorerError(
            Code.SCORER_UNKNOWN,
            given=f"no scorer has the name {name!r}",
            allowed=f"one of {', '.join(names())}, or {AUTO} in the configuration",
            fix="correct the name, or install the package that brings it on every node",
        )
    if len(found) > 1 or name == AUTO:
        origins = " and ".join(source.origin for source in found)
        raise ScorerError(
            Code.SCORER_DUPLICATE,
            given=f"the scorer {name!r} is brought by {origins}",
            allowed=f"one scorer for each name, and none called {AUTO!r}",
            fix="uninstall one of these packages, or rename the scorer in its entry points",
        )
    return found[0]


def load(name: str, *, built_in: bool = False) -> type[Any]:
    """Import the scorer ``name``.

    Args:
        name: the scorer's.
        built_in: this package's, whatever other packages bring: the user named none.

    Raises:
        ScorerError: as :func:`find`; ``AV-SCORER-BROKEN`` where it cannot be imported or is no
            class.
    """
    source = _built_in[name] if built_in else find(name)
    try:
        loaded = source.load()
    except (Exception, SystemExit) as error:
        raise ScorerError(
            Code.SCORER_BROKEN,
            given=f"the scorer {name!r} of {source.origin} cannot be imported "
            f"({type(error).__name__}: {told(error)})",
            allowed=f"an entry point of the group {GROUP} that names a class",
            fix="repair or uninstall that package, or choose another scorer",
        ) from error
    if not isinstance(loaded, type):
        raise ScorerError(
            Code.SCORER_BROKEN,
            given=f"the scorer {name!r} of {source.origin} is {told(loaded, repr)}",
            allowed="a class that is built from one ScorerContext",
            fix="correct that package's entry point, or choose another scorer",
        )
    return loaded
