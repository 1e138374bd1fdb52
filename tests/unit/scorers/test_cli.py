"""``vllm-av scorers``."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.scorers.conftest import Install
from vllm_av.cli import app as cli
from vllm_av.drafters import TYPES
from vllm_av.scorers.by_drafter import lines

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            cli.main(["scorers", *args])
        out, err = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return caught.value.code, out, err

    return call


def listed(run: Run, *args: str) -> dict[str, dict[str, Any]]:
    code, out, err = run(*args, "--json")
    assert (code, err) == (0, "")
    return {entry["name"]: entry for entry in json.loads(out)["scorers"]}


def test_our_scorers_say_what_they_need(run: Run) -> None:
    entries = listed(run)
    assert list(entries) == [
        "confidence_head",
        "online_estimator",
        "pooled_estimator",
        "max_probability",
    ]
    assert {name: entry["learns"] for name, entry in entries.items()} == {
        "confidence_head": False,
        "online_estimator": True,
        "pooled_estimator": True,
        "max_probability": False,
    }
    for name, entry in entries.items():
        head = name == "confidence_head"
        assert entry["origin"] == "vllm_av"
        assert entry["problem"] is None
        assert entry["meaning"].endswith(".")
        assert entry["traits"] == {
            "needs_draft_logits": not head,
            "needs_confidence_head": head,
            "needs_drawn_tokens": False,
            "prefix_measurable": True,
            "lossy": False,
        }


def test_auto_is_shown_for_each_case(run: Run) -> None:
    choices = json.loads(run("--json")[1])["auto"]
    assert {(c["has_head"], c["has_logits"]): c["scorer"] for c in choices} == {
        (True, True): "confidence_head",
        (True, False): "confidence_head",
        (False, True): "online_estimator",
        (False, False): None,
    }
    assert all(choice["reason"] for choice in choices)


def test_every_drafter_has_a_scorer_or_a_reason_against_it(run: Run) -> None:
    rows = {row["name"]: row for row in json.loads(run("--json")[1])["drafters"]}
    assert rows.keys() == {row.name for row in TYPES}
    assert {name: row["scorer"] for name, row in rows.items() if row["scorer"]} == {
        **dict.fromkeys(["eagle", "eagle3", "draft-model"], "online_estimator"),
        **dict.fromkeys(["mtp", "multi-module-mtp", "gemma4-mtp"], "online_estimator"),
        **dict.fromkeys(["dflash", "dflash2", "lilicorr", "dspark-headless"], "online_estimator"),
        "dspark": "confidence_head",
    }
    assert all(row["reason"] and row["drafting"] for row in rows.values())
    assert rows["dflash2"] | {"reason": "", "drafting": ""} == {
        "name": "dflash2",
        "title": "DFlash2",
        "methods": ["dflash"],
        "architectures": ["DFlash2DraftModel", "DFlash2BeamDraftModel"],
        "speculator": "DFlash2Speculator",
        "vllm": ["0.32.0", "0.33.0"],
        "draft_logits": "candidates",
        "local_argmax_spares_logits": False,
        "confidence_head": "never",
        "passes": "one",
        "drafting": "",
        "start": {
            "slope": 0.44,
            "intercept": -0.16,
            "source": "Muse-Glimmer with DFlash2: .443, -.158 (vLLM 52228)",
        },
        "scorer": "online_estimator",
        "reason": "",
    }
    assert run()[1].endswith("\n" + "".join(f"{line}\n" for line in lines()))


def test_the_text_names_each_scorer_and_each_case(run: Run) -> None:
    code, out, err = run()
    assert (code, err) == (0, "")
    for line in (
        "confidence_head  (from vllm_av)",
        "  needs a confidence head",
        "  prefix-measurable: the output stays exact",
        "  learns while it serves",
    ):
        assert line in out.splitlines()
    assert "\n  no confidence head, draft logits: online_estimator (" in out


def test_a_package_is_listed_without_being_imported(run: Run, install: Install) -> None:
    install("other", {"theirs": "other_module:Theirs"}, other_module="raise RuntimeError\n")
    entry = listed(run)["theirs"]
    assert (entry["origin"], entry["meaning"]) == ("other 1.5", "About other")
    assert (entry["traits"], entry["learns"], entry["problem"]) == (None, None, None)
    assert "other_module" not in sys.modules
    assert "not imported yet: `vllm-av scorers theirs` does and says more" in run()[1]


def test_a_package_that_is_named_is_imported(run: Run, install: Install) -> None:
    source = (
        "from vllm_av.scorers.base import Scorer\n"
        "class Theirs(Scorer):\n"
        '    """Guesses."""\n'
        "    needs_draft_logits = needs_drawn_tokens = True\n"
        "    def observe(self, a, b, c, d): ...\n"
    )
    install("other", {"theirs": "other_module:Theirs"}, other_module=source)
    entries = listed(run, "theirs")
    assert list(entries) == ["theirs"]
    assert entries["theirs"]["meaning"] == "Guesses."
    assert entries["theirs"]["learns"] is True
    assert entries["theirs"]["traits"]["lossy"] is True
    assert 'lossy: needs "allow_lossy": true' in run("theirs")[1]


def test_a_name_that_two_bring_hides_nobody(run: Run, install: Install) -> None:
    install("other", {"online_estimator": "other_module:Theirs", "auto": "other_module:A"})
    code, out, _ = run("--json")
    entries = json.loads(out)["scorers"]
    assert code == 0
    problems = {(e["name"], e["origin"]): e["problem"] for e in entries}
    assert problems == {
        ("confidence_head", "vllm_av"): None,
        ("online_estimator", "vllm_av"): "2 scorers have this name",
        ("pooled_estimator", "vllm_av"): None,
        ("max_probability", "vllm_av"): None,
        ("auto", "other 1.5"): "no scorer may be called auto",
        ("online_estimator", "other 1.5"): "2 scorers have this name",
    }


@pytest.mark.parametrize(
    ("name", "code"), [("nope", "AV-SCORER-UNKNOWN"), ("theirs", "AV-SCORER-BROKEN")]
)
def test_a_mistake_is_one_line(name: str, code: str, run: Run, install: Install) -> None:
    install("other", {"theirs": "other_module:Theirs"}, other_module="raise RuntimeError\n")
    exit_code, out, err = run(name)
    assert (exit_code, out) == (2, "")
    assert err.startswith(f"error: [{code}]")
    assert err.count("\n") == 1
    answer = json.loads(run(name, "--json")[1])
    assert answer["error"]["code"] == code
