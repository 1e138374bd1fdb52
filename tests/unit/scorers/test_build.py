"""From a name to a guarded scorer: what is refused, when, and who is blamed."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.unit.scorers.conftest import Install
from vllm_av.config import AdaptiveVerificationConfig
from vllm_av.errors import ScorerError
from vllm_av.scorers.base import Scorer, ScorerContext
from vllm_av.scorers.build import admit, build
from vllm_av.scorers.guard import GuardedScorer

MODULE = "from vllm_av.scorers.base import Scorer\n"
READS_LOGITS = "    needs_draft_logits = True\n    def predict(self, a, b, c, d, out): out += 1\n"


def context(scorer: str, **changes: Any) -> ScorerContext:
    config: Any = SimpleNamespace(scorer=scorer, allow_lossy=changes.pop("allow_lossy", False))
    arguments: dict[str, Any] = {
        "num_speculative_steps": 3,
        "max_num_reqs": 4,
        "device": None,
        "has_draft_logits": True,
        "confidence_head": None,
        "config": config,
    }
    return ScorerContext(**arguments | changes)


def refusal(given: ScorerContext) -> str:
    with pytest.raises(ScorerError) as caught:
        build(given)
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.fixture
def theirs(install: Install) -> Callable[[str], None]:
    """Make the class ``Theirs``, whose body is given, the scorer ``theirs``."""

    def make(body: str, base: str = "Scorer") -> None:
        source = f"{MODULE}class Theirs({base}):\n{body}"
        install("other", {"theirs": "other_module:Theirs"}, other_module=source)

    return make


def test_a_scorer_by_its_name(theirs: Callable[[str], None]) -> None:
    theirs(READS_LOGITS)
    scorer, selection = build(context("theirs"))
    assert (scorer.name, selection.name) == ("theirs", "theirs")
    assert type(scorer.scorer).__name__ == "Theirs"
    assert (scorer.needs_draft_logits, scorer.needs_confidence_head) == (True, False)
    assert not scorer.traits.lossy


def test_auto_takes_the_head() -> None:
    scorer, selection = build(context("auto", confidence_head=lambda *_: None))
    assert (scorer.name, selection.name) == ("confidence_head", "confidence_head")
    assert (scorer.needs_draft_logits, scorer.needs_confidence_head) == (False, True)


def test_auto_is_not_harmed_by_another_s_name(install: Install) -> None:
    install("other", {"online_estimator": "other_module:Theirs", "auto": "other_module:Theirs"})
    config: Any = AdaptiveVerificationConfig()
    scorer, _ = build(context("auto", config=config, device="cpu"))
    assert scorer.name == "online_estimator"
    assert refusal(context("online_estimator")).startswith("[AV-SCORER-DUPLICATE]")


def test_a_class_that_raises_when_it_is_asked_is_broken(theirs: Callable[..., None]) -> None:
    theirs(
        READS_LOGITS,
        base="metaclass=type('Meta', (type,), {'__getattribute__': lambda c, n: 1 / 0})",
    )
    line = refusal(context("theirs"))
    assert line.startswith("[AV-SCORER-BROKEN] the scorer 'theirs' is not as a scorer must be: ")
    assert "raised ZeroDivisionError: division by zero" in line


def test_a_constructor_that_exits_is_named(theirs: Callable[[str], None]) -> None:
    theirs(f"{READS_LOGITS}    def __init__(self, context): raise SystemExit(0)\n")
    assert "raised SystemExit in its constructor: 0" in refusal(context("theirs"))


def test_a_name_overrides_the_head() -> None:
    scorer, _ = build(context("max_probability", confidence_head=lambda *_: None))
    assert scorer.name == "max_probability"


def test_a_head_that_is_not_there_is_refused() -> None:
    line = refusal(context("confidence_head"))
    assert line.startswith("[AV-SCORER-NEEDS] the scorer 'confidence_head' needs a confidence head")


def test_logits_that_are_not_there_are_refused(theirs: Callable[[str], None]) -> None:
    theirs(READS_LOGITS)
    for name in ("max_probability", "online_estimator", "theirs"):
        line = refusal(context(name, has_draft_logits=False))
        assert line.startswith(f"[AV-SCORER-NEEDS] the scorer {name!r} needs draft logits")


@pytest.mark.parametrize(
    ("says", "confession"),
    [
        ("prefix_measurable = False", "is not prefix-measurable"),
        ("needs_drawn_tokens = True", "needs the drawn tokens"),
    ],
)
def test_a_lossy_scorer_is_refused_unless_it_is_allowed(
    says: str, confession: str, theirs: Callable[[str], None]
) -> None:
    predict = "    def predict(self, a, b, c, d, out, drawn=None): ...\n"
    theirs(f"    needs_draft_logits = True\n    {says}\n{predict}")
    line = refusal(context("theirs"))
    assert line.startswith(f"[AV-SCORER-LOSSY] the scorer 'theirs' {confession}")
    assert line.endswith('"allow_lossy": true')
    scorer, _ = build(context("theirs", allow_lossy=True))
    assert scorer.traits.lossy


def test_a_lossy_scorer_is_refused_before_it_is_built(theirs: Callable[[str], None]) -> None:
    init = "    def __init__(self, context): raise RuntimeError('was built')\n"
    theirs(f"    prefix_measurable = False\n{READS_LOGITS}{init}")
    assert refusal(context("theirs")).startswith("[AV-SCORER-LOSSY]")
    assert "was built" in refusal(context("theirs", allow_lossy=True))


def test_an_object_may_not_turn_lossy_behind_its_class(theirs: Callable[[str], None]) -> None:
    theirs(f"{READS_LOGITS}    def __init__(self, context): self.prefix_measurable = False\n")
    assert refusal(context("theirs")).startswith("[AV-SCORER-LOSSY]")


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("    pass\n", "needs neither draft logits nor a confidence head"),
        ("    needs_draft_logits = 'yes'\n", "needs_draft_logits is 'yes'"),
        (
            "    needs_confidence_head = True\n    needs_drawn_tokens = True\n",
            "drawn tokens come with draft logits",
        ),
        ("    needs_draft_logits = True\n", "needs predict(logits, idx_mapping, draft_step"),
        (
            "    needs_draft_logits = True\n    def predict(self, logits): ...\n",
            "cannot be called as predict(logits, idx_mapping, draft_step, temperature, out)",
        ),
        (
            f"{READS_LOGITS}    needs_drawn_tokens = True\n",
            "predict(logits, idx_mapping, draft_step, temperature, out, drawn_tokens)",
        ),
        ("    needs_confidence_head = True\n", "needs predict_block(hidden_states"),
        (
            f"{READS_LOGITS}    def observe(self, idx_mapping, num_sampled, num_rejected): ...\n",
            "cannot be called as observe(idx_mapping, num_sampled, num_rejected, mask)",
        ),
        (f"{READS_LOGITS}    snapshot = None\n", "it has no snapshot()"),
    ],
)
def test_what_is_no_scorer_is_refused_in_one_line(
    body: str, found: str, theirs: Callable[[str], None]
) -> None:
    theirs(body)
    line = refusal(context("theirs", allow_lossy=True, confidence_head=lambda *_: None))
    assert line.startswith("[AV-SCORER-BROKEN] the scorer 'theirs' is not as a scorer must be: ")
    assert found in line


def test_a_class_of_its_own_is_told_everything_at_once(theirs: Callable[..., None]) -> None:
    theirs("    def __init__(self, context): ...\n", base="object")
    line = refusal(context("theirs"))
    for attribute in ("needs_draft_logits", "needs_confidence_head", "prefix_measurable"):
        assert f"{attribute} is None and must be True or False" in line


def test_a_class_of_its_own_may_inherit_from_nothing(theirs: Callable[..., None]) -> None:
    flags = "needs_confidence_head = needs_drawn_tokens = False; prefix_measurable = True"
    theirs(
        f"    {flags}\n    def __init__(self, context): ...\n{READS_LOGITS}"
        "    def observe(self, a, b, c, d): ...\n    def snapshot(self): return {}\n",
        base="object",
    )
    scorer, _ = build(context("theirs"))
    assert scorer.snapshot() == {}


def test_a_constructor_that_raises_is_named(theirs: Callable[[str], None]) -> None:
    theirs(f"{READS_LOGITS}    def __init__(self, context): raise KeyError('table')\n")
    with pytest.raises(ScorerError) as caught:
        build(context("theirs"))
    line = str(caught.value)
    assert line.startswith("[AV-SCORER-FAILED] the scorer 'theirs' raised KeyError in its constr")
    assert isinstance(caught.value.__cause__, KeyError)


class _Fails(Scorer):
    needs_draft_logits = True
    needs_confidence_head = True

    def _fail(self, *_: Any) -> Any:
        raise ZeroDivisionError("division by zero")

    predict = predict_block = observe = snapshot = _fail  # type: ignore[assignment]


class _Records(Scorer):
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def _see(self, *arguments: Any) -> str:
        self.calls.append(arguments)
        return "answer"

    predict = predict_block = observe = snapshot = _see  # type: ignore[assignment]


def guard(scorer: Scorer, **traits: bool) -> GuardedScorer:
    from vllm_av.scorers.traits import Traits

    values = {"needs_draft_logits": True, "needs_confidence_head": True}
    values |= {"needs_drawn_tokens": False, "prefix_measurable": True}
    return GuardedScorer("theirs", scorer, Traits(**values | traits))


CALLS: dict[str, Callable[[GuardedScorer], Any]] = {
    "predict": lambda scorer: scorer.predict(1, 2, 3, 4, 5),
    "predict_block": lambda scorer: scorer.predict_block(1, 2, 3),
    "observe": lambda scorer: scorer.observe(1, 2, 3),
    "snapshot": lambda scorer: scorer.snapshot(),
}


@pytest.mark.parametrize("method", CALLS)
def test_a_method_that_raises_is_named(method: str) -> None:
    scorer = guard(_Fails(context("theirs")))
    with pytest.raises(ScorerError) as caught:
        CALLS[method](scorer)
    line = str(caught.value)
    raised = f"raised ZeroDivisionError in {method}: division by zero"
    assert line.startswith(f"[AV-SCORER-FAILED] the scorer 'theirs' {raised}")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_stop_is_no_fault_of_the_scorer() -> None:
    class Stops(_Records):
        def predict(self, *_: Any) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard(Stops()).predict(1, 2, 3, 4, 5)


def test_vllm_s_own_exit_within_a_scorer_stays_one() -> None:
    """A worker's handler of SIGTERM raises wherever the program is."""
    handler: dict[str, Any] = {"__name__": "vllm.v1.executor"}
    exec("def handle(*_): raise SystemExit", handler)

    class Interrupted(_Records):
        def predict(self, *_: Any) -> None:
            handler["handle"]()

    with pytest.raises(SystemExit):
        guard(Interrupted()).predict(1, 2, 3, 4, 5)


def test_the_arguments_arrive_as_vllm_gives_them() -> None:
    scorer = _Records()
    guarded = guard(scorer)
    guarded.predict(1, 2, 3, 4, 5, 6)  # 6, the drawn tokens, are not handed on
    guarded.predict_block(1, 2, 3)
    guarded.observe(1, 2, 3)
    assert guarded.snapshot() == "answer"
    assert scorer.calls == [(1, 2, 3, 4, 5), (1, 2, 3), (1, 2, 3, None), ()]


def test_a_scorer_is_told_who_may_teach_and_not_why() -> None:
    scorer = _Records()
    guard(scorer).observe(1, 2, 3, np.array([0, 4, 0, 256], np.int32))
    [(*others, mask)] = scorer.calls
    assert others == [1, 2, 3]
    assert mask.dtype == bool
    assert mask.tolist() == [True, False, True, False]


def test_drawn_tokens_go_to_those_who_asked() -> None:
    scorer = _Records()
    guard(scorer, needs_drawn_tokens=True).predict(1, 2, 3, 4, 5, 6)
    assert scorer.calls == [(1, 2, 3, 4, 5, 6)]


def test_what_is_known_without_weights_is_refused_before_them(
    theirs: Callable[[str], None],
) -> None:
    """All but the head, which only the loaded checkpoint shows."""
    theirs(f"    prefix_measurable = False\n{READS_LOGITS}")
    config = context("theirs").config
    with pytest.raises(ScorerError, match="AV-SCORER-LOSSY"):
        admit(config, has_logits=True)
    allowed = context("theirs", allow_lossy=True).config
    admit(allowed, has_logits=True)
    with pytest.raises(ScorerError, match="AV-SCORER-NEEDS"):
        admit(allowed, has_logits=False)
    with pytest.raises(ScorerError, match="AV-SCORER-UNKNOWN"):
        admit(context("nobody_s").config, has_logits=True)
    admit(context("confidence_head").config, has_logits=False)
    admit(context("auto").config, has_logits=False)
