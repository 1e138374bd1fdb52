"""What ``docs/check.md`` shows is what the check says."""

import re
from pathlib import Path

import vllm_av
from ci.codes import PAGES, table
from tests.unit.preflight.rules.cases import Case
from tests.unit.preflight.rules.conftest import Check, checked
from vllm_av.preflight.reasons import Part, ReasonCode, Weight

__all__ = ["checked"]

ROOT = Path(vllm_av.__file__).parents[1]
PAGE = (ROOT / "docs/check.md").read_text()


def test_the_codes_of_reasons_are_all_there() -> None:
    _, source, name = PAGES[1]
    expected = table((ROOT / source).read_text(), name)
    assert expected.count("\n") == len(ReasonCode) + 2
    assert expected in PAGE, "run: python -m ci.codes"


def test_the_example_is_an_answer(checked: Check, tmp_path: Path) -> None:
    args = ("--enable-lora", "--attention-backend", "FLASH_ATTN", "--host", "::1", "--port", "80")
    answer = checked(Case("example", (), Weight.REFUSAL, args, gpu="rtx4090"))
    said = "\n".join(answer.lines()).replace(f"{tmp_path}/", "")
    shown = PAGE.split("## What an answer looks like\n\n")[1].split("\n\n")[0]
    assert [line.removeprefix("    ") for line in shown.splitlines()] == said.splitlines()


def test_the_keys_for_programs_are_all_there(checked: Check) -> None:
    told = PAGE.split("## For programs\n")[1].split("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", told))
    args = ("--max-num-seqs", "32", "--enable-lora")
    answer = checked(Case("keys", (), Weight.REFUSAL, args)).as_dict()
    (reason,), (layer,) = answer["reasons"], answer["layers"]
    for keys in (answer, reason, layer, layer["candidates"][0], answer["scorer"]):
        assert set(keys) <= named
    assert set(reason["changes"][0]) == {"part", "name", "value"}
    assert all(f"`{part}`" in told for part in Part)
