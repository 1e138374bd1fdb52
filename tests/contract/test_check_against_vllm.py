"""vLLM's own refusals of adaptive verification, and that the check tells each of them before.

Each command line is settled by vLLM itself, on a GPU that is not there (``config_worker``), and
asked of the check.
"""

from pathlib import Path

import pytest

from tests.contract.asked_configs import ASKED, Asked
from tests.contract.checkpoints import write
from tests.contract.configs import Case, Outcome, ask
from tests.contract.quotes import QUOTES, Quote, messages, quoted
from tests.contract.vllm_source import tree_of
from vllm_av.drafters import SUPPORTED
from vllm_av.patching.tree import Source, find_tree
from vllm_av.patching.verify import tree_source

WORDED = [(quote, version) for quote in QUOTES for version in quote.versions]
H100 = (9, 0)


def _id(each: object) -> str:
    return each.name if isinstance(each, Asked) else str(getattr(each, "code", each))


@pytest.fixture(scope="module")
def released() -> dict[str, Source]:
    """The files of each vLLM as it was released, whatever the series makes of them here."""
    return {version: tree_source(find_tree(tree_of(version).parent)) for version in SUPPORTED}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write(tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture(scope="module", params=SUPPORTED)
def vllm(
    request: pytest.FixtureRequest,
    checkpoints: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, dict[str, Outcome]]:
    """A version, and its answer to each case."""
    cases = [Case(each.argv(checkpoints), each.environ) for each in ASKED]
    answers = ask(request.param, H100, cases, tmp_path_factory.mktemp("cache"))
    named = zip((each.name for each in ASKED), answers, strict=True)
    return request.param, dict(named)


@pytest.mark.parametrize(("quote", "version"), WORDED, ids=_id)
def test_vllm_words_its_refusals_so(
    quote: Quote, version: str, released: dict[str, Source]
) -> None:
    text = released[version].read(f"vllm/{quote.file}")
    assert text is not None
    assert [each for each in messages(text, quote.function) if quote.words in each]


@pytest.mark.parametrize("asked", ASKED, ids=_id)
def test_vllm_refuses_what_is_to_be_refused(
    asked: Asked, vllm: tuple[str, dict[str, Outcome]]
) -> None:
    version, answers = vllm
    answer, expected = answers[asked.name], asked.expected(version)
    if not expected:
        assert answer.refusal is None
        assert answer.settled is not None
        assert answer.settled["adaptive"]
        return
    assert answer.refusal is not None
    told = quoted(answer.refusal, version)
    assert told, answer.refusal
    assert told <= expected


def test_every_early_refusal_is_asked_for() -> None:
    asked = {code for each in ASKED for code in each.refused}
    assert {quote.code for quote in QUOTES if not quote.late} <= asked
