"""The matrix of the engine tests has each pair of levels that there is."""

from itertools import product

from tests.engine.matrix import AUTO, HEAD, TEMPERATURES, VERIFICATIONS, Cell, cells, pairs

DRAFTERS = ["plain", "block", "headless", "head"]


def test_each_pair_of_levels_meets_in_some_cell() -> None:
    found = {pair for cell in cells(DRAFTERS, ["head"]) for pair in pairs(cell)}
    factors = {
        "drafter": DRAFTERS,
        "verification": list(VERIFICATIONS),
        "temperature": list(TEMPERATURES),
    }
    names = list(factors)
    wanted = {
        ((one, a), (other, b))
        for k, one in enumerate(names)
        for other in names[k + 1 :]
        for a, b in product(factors[one], factors[other])
    }
    impossible = {(("drafter", d), ("verification", HEAD)) for d in DRAFTERS if d != "head"}
    assert found == wanted - impossible


def test_it_is_less_than_the_product_and_says_nothing_twice() -> None:
    chosen = cells(DRAFTERS, ["head"])
    assert len(chosen) == len(set(chosen)) == 3 * 4 + 5 + 4 + 4
    assert [cell.drafter for cell in chosen] == sorted(
        (cell.drafter for cell in chosen), key=DRAFTERS.index
    )


def test_each_type_is_sampled_with_what_auto_takes() -> None:
    hot = [cell for cell in cells(DRAFTERS, ["head"]) if cell.temperature == 1]
    assert {Cell(drafter, AUTO, 1) for drafter in DRAFTERS} < set(hot)
