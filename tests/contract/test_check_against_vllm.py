"""vLLM's own refusals of adaptive verification, and that the check tells each of them before.

Each command line is settled by vLLM itself, on a GPU that is not there (``config_worker``), and
asked of the check.
"""

from pathlib import Path

import pytest

from tests.contract.asked_configs import ASKED, IN_THE_CONFIG, Asked
from tests.contract.checkpoints import write
from tests.contract.configs import MEMORY, Case, Outcome, ask
from tests.contract.quotes import QUOTES, Quote, messages, quoted
from tests.contract.vllm_source import tree_of
from tests.unit.preflight.rules.applied import applied
from vllm_av.drafters import SUPPORTED
from vllm_av.patching.tree import Source, find_tree
from vllm_av.patching.verify import tree_source
from vllm_av.preflight.check import Answer, Ways, check
from vllm_av.preflight.question import Question
from vllm_av.preflight.reasons import ReasonCode, Verdict, Weight

MENDED = "mended: "
WORDED = [(quote, version) for quote in QUOTES for version in quote.versions]


def _id(each: object) -> str:
    return each.name if isinstance(each, Asked) else str(getattr(each, "code", each))


@pytest.fixture(scope="module")
def released() -> dict[str, Source]:
    """The files of each vLLM as it was released, whatever the series makes of them here."""
    return {version: tree_source(find_tree(tree_of(version).parent)) for version in SUPPORTED}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write(tmp_path_factory.mktemp("checkpoints"))


Answers = tuple[str, str, dict[str, Outcome]]
"""A version, a GPU, and what that vLLM answers on that GPU to each case."""

_WIDE = [
    pytest.param(("0.33.0", gpu), marks=pytest.mark.full)
    for gpu in ("h100", "a100", "rtx5090", "mi300x", "xpu", "cpu")
]


@pytest.fixture(
    scope="module",
    params=[("0.32.0", "h100"), ("0.33.0", "b200"), *_WIDE],
    ids=lambda each: "-".join(each),
)
def vllm(
    request: pytest.FixtureRequest,
    checkpoints: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Answers:
    version, gpu = request.param
    cases = {each.name: Case(each.argv(checkpoints), each.environ) for each in ASKED}
    for each in ASKED:
        answer = _checked(each, version, gpu, checkpoints)
        refusals = [reason for reason in answer.reasons if reason.weight is Weight.REFUSAL]
        if refusals and all(reason.changes for reason in refusals):
            changes = [change for reason in refusals for change in reason.changes]
            mended = applied(_question(each, version, gpu, checkpoints), changes)
            cases[f"{MENDED}{each.name}"] = Case(mended.args, mended.environment)
    answers = ask(version, gpu, [*cases.values()], tmp_path_factory.mktemp("cache"))
    return version, gpu, dict(zip(cases, answers, strict=True))


@pytest.mark.parametrize(("quote", "version"), WORDED, ids=_id)
def test_vllm_words_its_refusals_so(
    quote: Quote, version: str, released: dict[str, Source]
) -> None:
    text = released[version].read(f"vllm/{quote.file}")
    assert text is not None
    assert [each for each in messages(text, quote.function) if quote.words in each]


@pytest.mark.parametrize("asked", ASKED, ids=_id)
def test_vllm_refuses_what_is_to_be_refused(asked: Asked, vllm: Answers) -> None:
    version, gpu, answers = vllm
    answer, expected = answers[asked.name], asked.expected(version, gpu)
    if not expected:
        assert answer.refusal is None
        assert answer.settled is not None
        assert answer.settled["adaptive"]
        return
    assert answer.refusal is not None
    # All at once, as the series has it; a release tells the first.
    assert quoted(answer.refusal, version) == (asked.worded or expected), answer.refusal


@pytest.mark.parametrize("gpu", MEMORY)
@pytest.mark.parametrize("version", SUPPORTED)
@pytest.mark.parametrize("asked", ASKED, ids=_id)
def test_the_check_tells_it_before_and_all_at_once(
    asked: Asked, version: str, gpu: str, checkpoints: dict[str, Path]
) -> None:
    answer = _checked(asked, version, gpu, checkpoints)
    told = {reason.code for reason in answer.reasons if reason.weight is Weight.REFUSAL}
    assert told & IN_THE_CONFIG == asked.expected(version, gpu)
    if not told - IN_THE_CONFIG:
        assert answer.verdict is (Verdict.NO if told else Verdict.YES)


@pytest.mark.parametrize("asked", ASKED, ids=_id)
def test_the_check_settles_what_vllm_settles(
    asked: Asked, vllm: Answers, checkpoints: dict[str, Path]
) -> None:
    version, gpu, answers = vllm
    settled = answers[asked.name].settled
    if settled is None:
        assert asked.expected(version, gpu)
        return
    setup = _checked(asked, version, gpu, checkpoints).asked.setup
    assert {
        "runner": setup.runner or "v2",
        "cudagraph_mode": setup.cudagraph_mode,
        "max_capture_size": setup.max_capture_size,
        "max_num_seqs": setup.max_num_seqs,
        "max_num_batched_tokens": setup.max_num_batched_tokens,
        "method": setup.draft.method,
        "num_speculative_tokens": setup.draft.num_speculative_tokens,
        "dtype": setup.target.dtype,
        "vocab_size": setup.target.vocab_size,
        "attention_backend": setup.attention_backend,
        "flash_attn_version": setup.features.get("attention_config", {}).get("flash_attn_version"),
        "kv_cache_dtype": setup.kv_cache_dtype,
        "adaptive": True,
    } == settled


def test_vllm_starts_once_every_fix_is_made(vllm: Answers) -> None:
    _, gpu, answers = vllm
    mended = {name: each for name, each in answers.items() if name.startswith(MENDED)}
    refused = {name: each.refusal for name, each in mended.items() if each.refusal}
    assert refused == {}
    assert all(each.settled and each.settled["adaptive"] for each in mended.values())
    # All but the drafters that make no estimate, which no flag mends.
    assert len(mended) >= (10 if gpu == "cpu" else 18)


def test_what_vllm_tells_when_a_drafter_is_loaded_is_told_before(
    checkpoints: dict[str, Path],
) -> None:
    """A DSpark without a confidence head, whose draft logits are spared."""
    spared = {"use_local_argmax_reduction": True}
    without = Asked("", method="dspark", draft="smollm2-dspark-headless", more=spared)
    for version in SUPPORTED:
        reasons = _checked(without, version, "h100", checkpoints).reasons
        refusals = [reason.code for reason in reasons if reason.weight is Weight.REFUSAL]
        assert refusals == [ReasonCode.LOCAL_ARGMAX]


def _question(asked: Asked, version: str, gpu: str, checkpoints: dict[str, Path]) -> Question:
    environment = dict(asked.environ)
    return Question(asked.argv(checkpoints), gpu=gpu, vllm=version, environment=environment)


def _checked(asked: Asked, version: str, gpu: str, checkpoints: dict[str, Path]) -> Answer:
    return check(_question(asked, version, gpu, checkpoints), Ways.TABLE)


def test_every_early_refusal_is_asked_for() -> None:
    asked = {code for each in ASKED for code in each.refused}
    assert {quote.code for quote in QUOTES if not quote.late} <= asked
