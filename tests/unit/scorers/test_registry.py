"""Names, where they come from, and what is imported when."""

import re
import sys

import pytest

from tests.unit.scorers.conftest import Install
from vllm_av.errors import ScorerError
from vllm_av.scorers import registry
from vllm_av.scorers.max_probability import MaxProbability

OURS = ["confidence_head", "max_probability", "online_estimator", "pooled_estimator"]


def refusal(name: str) -> str:
    with pytest.raises(ScorerError) as caught:
        registry.load(name)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_our_scorers_are_named_and_load() -> None:
    assert registry.names() == OURS
    assert registry.load("max_probability") is MaxProbability
    assert {registry.load(name).__module__ for name in OURS} == {
        f"vllm_av.scorers.{name}" for name in OURS
    }


def test_an_unknown_name_lists_the_known_ones(install: Install) -> None:
    install("other", {"theirs": "other_module:Theirs"})
    line = refusal("confidense_head")
    assert line.startswith("[AV-SCORER-UNKNOWN] no scorer has the name 'confidense_head'")
    known = ", ".join(["one of confidence_head", *OURS[1:], "theirs, or auto"])
    assert known in line


def test_a_name_is_registered_once() -> None:
    for taken in ("max_probability", "auto"):
        with pytest.raises(ScorerError, match=re.escape("AV-SCORER-DUPLICATE")) as caught:
            registry.register(taken)(lambda: MaxProbability)
        assert repr(taken) in str(caught.value)
    assert registry.load("max_probability") is MaxProbability


def test_a_package_is_listed_unread_and_imported_when_chosen(install: Install) -> None:
    install("other", {"theirs": "other_module:Theirs"}, other_module="class Theirs: pass\n")
    assert registry.names() == sorted([*OURS, "theirs"])
    source = registry.find("theirs")
    assert (source.origin, source.summary) == ("other 1.5", "About other")
    assert "other_module" not in sys.modules
    assert registry.load("theirs").__name__ == "Theirs"
    assert "other_module" in sys.modules


@pytest.mark.parametrize(
    ("module", "found"),
    [
        ("raise RuntimeError('no licence')\n", "RuntimeError: no licence"),
        ("", "AttributeError: module 'other_module' has no attribute 'Theirs'"),
        ("import a_module_that_is_not_there\n", "ModuleNotFoundError: No module named 'a_mod"),
        ("import sys; sys.exit(0)\n", "SystemExit: 0"),
        (
            "class E(Exception):\n    def __str__(self): return 1 / 0\nraise E\n",
            "E: <its str() fails>",
        ),
        ("raise OSError('\\x1b[2Jgone\\r\\n')\n", "OSError: [2Jgone );"),
        ("def Theirs(context): return None\n", "is <function Theirs"),
    ],
    ids=["raises", "lacks it", "needs", "exits", "no text", "escapes", "no class"],
)
def test_a_broken_package_is_named_in_one_line(module: str, found: str, install: Install) -> None:
    install("other", {"theirs": "other_module:Theirs"}, other_module=module)
    assert "theirs" in registry.names()
    line = refusal("theirs")
    assert line.startswith("[AV-SCORER-BROKEN] the scorer 'theirs' of other 1.5 ")
    assert found in line
    assert registry.load("max_probability") is MaxProbability  # nobody else is harmed


def test_two_packages_with_one_name_are_both_named(install: Install) -> None:
    install("first", {"theirs": "first_module:Theirs"})
    install("second", {"theirs": "second_module:Theirs"})
    assert registry.names() == sorted([*OURS, "theirs"])
    line = refusal("theirs")
    assert line.startswith("[AV-SCORER-DUPLICATE]")
    assert "first 1.5 and second 1.5" in line


def test_no_package_replaces_one_of_ours(install: Install) -> None:
    install("other", {"online_estimator": "other_module:Theirs"})
    line = refusal("online_estimator")
    assert line.startswith("[AV-SCORER-DUPLICATE]")
    assert "vllm_av and other 1.5" in line
    assert registry.load("online_estimator", built_in=True).__name__ == "OnlineEstimatorScorer"


def test_no_package_brings_one_called_auto(install: Install) -> None:
    install("other", {"auto": "other_module:Theirs"})
    assert refusal("auto").startswith("[AV-SCORER-DUPLICATE]")


def test_unreadable_entry_points_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: str) -> None:
        raise ValueError("not enough values to unpack")

    monkeypatch.setattr(registry, "entry_points", broken)
    with pytest.raises(ScorerError, match=r"AV-SCORER-BROKEN.*not enough values"):
        registry.names()
