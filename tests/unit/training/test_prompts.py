"""What is held out is held out."""

import zlib
from dataclasses import asdict

import pytest

from vllm_av.demo.prompts import choose
from vllm_av.training.leakage import kept_back
from vllm_av.training.prompts import (
    HELD_OUT_EACH,
    INSTALMENTS,
    WORKLOADS,
    Request,
    held_out,
    requests,
)


@pytest.fixture(scope="module")
def everything() -> list[Request]:
    return [request for number in range(INSTALMENTS) for request in requests(number)]


@pytest.fixture(scope="module")
def asked(everything: list[Request]) -> list[Request]:
    """What answers are generated for to be trained on."""
    return [request for request in everything if not request.held_out]


@pytest.fixture(scope="module")
def trained(asked: list[Request]) -> list[Request]:
    """What is left of it."""
    kept = [text for workload in WORKLOADS for _, text in held_out(workload)]
    back = kept_back([asdict(r) for r in asked], [r.text or "" for r in asked], kept)
    return [request for request, left in zip(asked, back, strict=True) if not left]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_each_workload_has_its_prompts_held_out_at_both_temperatures(
    workload: str, everything: list[Request]
) -> None:
    names = [name for name, _ in held_out(workload)]
    assert len(names) == HELD_OUT_EACH
    found = [(r.source, r.temperature) for r in everything if r.held_out and r.workload == workload]
    assert sorted(found) == sorted((name, t) for name in names for t in (0.0, 1.0))


def test_nothing_that_the_demonstration_asks_is_trained_on(trained: list[Request]) -> None:
    known = [(r.source, " ".join((r.text or "").split())) for r in trained]
    for prompt in choose(3 * HELD_OUT_EACH):
        # A docstring may stand in other modules, be asked about in other words, and stand indented
        # in source, of which a request has no more than some lines.
        text = prompt.text.partition("\n\n")[2] if prompt.workload == "docs" else prompt.text
        words = text.split()
        runs = [" ".join(words[at : at + 40]) for at in range(max(1, len(words) - 39))]
        for name, request in known:
            assert name != prompt.name
            assert not [run for run in runs if run in request], (name, prompt.name)


def test_what_says_a_held_out_prompt_again_is_left_out(
    asked: list[Request], trained: list[Request]
) -> None:
    left = {request.source for request in asked} - {request.source for request in trained}
    # As difflib's set_seq1, ipaddress's is_unspecified and HumanEval/33, which are held out.
    assert left >= {"difflib.set_seq2", "ipaddress.is_loopback", "HumanEval/37"}
    assert len(trained) > 0.93 * len(asked)


def test_no_question_is_about_a_file_that_is_held_out(trained: list[Request]) -> None:
    for request in trained:
        if request.workload == "docs":
            name = request.source.rpartition(".")[0].replace(".", "/") + ".py"
            assert zlib.crc32(name.encode()) % 9, request.source


def test_code_is_trained_on_other_files_than_it_is_measured_on(everything: list[Request]) -> None:
    for request in everything:
        if request.workload == "code":
            name = request.source.rpartition(":")[0]
            assert (zlib.crc32(name.encode()) % 9 == 0) is request.held_out, name


def test_three_in_ten_answers_are_greedy(asked: list[Request]) -> None:
    greedy = sum(request.temperature == 0 for request in asked) / len(asked)
    assert greedy == pytest.approx(0.3, abs=0.02)


def test_no_two_trained_requests_are_the_same_but_for_another_answer(
    trained: list[Request],
) -> None:
    texts = [r.text for r in trained if r.workload in ("docs", "code")]
    assert len(set(texts)) > 0.97 * len(texts)  # classes share docstrings here and there
    invented = [r.source for r in trained if r.workload == "instructions"]
    assert len(set(invented)) == len(invented)


def test_the_order_is_always_the_same_and_mixes_the_workloads(everything: list[Request]) -> None:
    first = requests(0)
    assert everything[: len(first)] == first
    for start in range(0, len(everything) - 256, 256):
        kinds = {request.workload for request in everything[start : start + 256]}
        assert kinds >= {"docs", "instructions", "code"}
