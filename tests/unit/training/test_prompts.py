"""What is held out is held out."""

import zlib

import pytest

from vllm_av.demo.prompts import choose
from vllm_av.training.prompts import HELD_OUT_EACH, ROUNDS, WORKLOADS, Request, held_out, requests


@pytest.fixture(scope="module")
def everything() -> list[Request]:
    return [request for turn in range(ROUNDS) for request in requests(turn)]


@pytest.fixture(scope="module")
def trained(everything: list[Request]) -> list[Request]:
    return [request for request in everything if not request.held_out]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_each_workload_has_its_prompts_held_out_at_both_temperatures(
    workload: str, everything: list[Request]
) -> None:
    names = [name for name, _ in held_out(workload)]
    assert len(names) == HELD_OUT_EACH
    asked = [(r.source, r.temperature) for r in everything if r.held_out and r.workload == workload]
    assert sorted(asked) == sorted((name, t) for name in names for t in (0.0, 1.0))


def test_nothing_that_the_demonstration_asks_is_trained_on(trained: list[Request]) -> None:
    known = [(r.source, r.text or "") for r in trained]
    for prompt in choose(3 * HELD_OUT_EACH):
        # A docstring may stand in other modules, and be asked about in other words.
        text = prompt.text.partition("\n\n")[2] if prompt.workload == "docs" else prompt.text
        assert not [name for name, asked in known if name == prompt.name or text in asked]


def test_code_is_trained_on_other_files_than_it_is_measured_on(everything: list[Request]) -> None:
    for request in everything:
        if request.workload == "code":
            name = request.source.rpartition(":")[0]
            assert (zlib.crc32(name.encode()) % 9 == 0) is request.held_out, name


def test_three_in_ten_answers_are_greedy(trained: list[Request]) -> None:
    greedy = sum(request.temperature == 0 for request in trained) / len(trained)
    assert greedy == pytest.approx(0.3, abs=0.02)


def test_no_two_trained_requests_are_the_same_but_for_another_answer(
    trained: list[Request],
) -> None:
    asked = [r.text for r in trained if r.workload in ("docs", "code")]
    assert len(set(asked)) > 0.97 * len(asked)  # classes share docstrings here and there
    invented = [r.source for r in trained if r.workload == "instructions"]
    assert len(set(invented)) == len(invented)


def test_the_order_is_always_the_same_and_mixes_the_workloads(everything: list[Request]) -> None:
    first = requests(0)
    assert everything[: len(first)] == first
    for start in range(0, len(everything) - 256, 256):
        kinds = {request.workload for request in everything[start : start + 256]}
        assert kinds >= {"docs", "instructions", "code"}
