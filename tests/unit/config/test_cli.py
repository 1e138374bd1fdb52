"""``vllm-av config``, as it is called, and the configs that come with the project."""

import io
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import vllm_av
from vllm_av.cli import app as cli
from vllm_av.config import (
    AdaptiveVerificationConfig,
    EstimatorConfig,
    canonical,
    parse_block,
)
from vllm_av.scorers import registry

CONFIGS = Path(vllm_av.__file__).parents[1] / "configs"
NOT_CHECKED = "of vLLM's own keys, only those that decide about the block were checked"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def call(*args: str, stdin: str = "") -> tuple[int, str, str]:
        given = SimpleNamespace(buffer=io.BytesIO(stdin.encode()))
        monkeypatch.setattr("vllm_av.config.text.sys.stdin", given)
        with pytest.raises(SystemExit) as left:
            cli.main(["config", *args])
        out, err = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, out, err

    return call


def test_the_schema_is_that_of_the_block(run: Run) -> None:
    code, out, err = run("schema", "--json")
    assert (code, err) == (0, "")
    schema = json.loads(out)
    assert list(schema["properties"]) == [
        "allow_lossy",
        "budget",
        "estimator",
        "exploration",
        "on_unsupported",
        "scorer",
        "state_file",
        "trace",
    ]
    interval = schema["$defs"]["EstimatorConfig"]["properties"]["refit_interval"]
    assert interval["default"] is None
    assert interval["anyOf"][0] == {"type": "integer", "minimum": 1, "maximum": 1000000}
    assert json.loads(run("schema")[1]) == schema


def test_a_valid_block_is_valid(run: Run) -> None:
    code, out, err = run("validate", "-", stdin='{"scorer": "auto"}')
    assert (code, out, err) == (0, "standard input, taken for a bare block: valid\n", "")
    code, out, _ = run("validate", "-", "--json", stdin='{"scorer": "auto"}')
    assert code == 0
    assert json.loads(out) == {
        "block": canonical(AdaptiveVerificationConfig()),
        "enabled": True,
        "errors": [],
        "notes": [],
        "took": "a bare block",
        "valid": True,
    }


def test_every_mistake_is_told(run: Run) -> None:
    text = '{"method": "eagle", "adaptive_verification_config": {"zzz": 1, "scorer": 2}}'
    code, out, err = run("validate", "-", stdin=text)
    assert (code, err) == (1, "")
    lines = out.splitlines()
    codes = ["AV-CONFIG-OFF", "AV-CONFIG-KEY", "AV-CONFIG-TYPE"]
    assert [re.findall(r"^error: \[([A-Z-]+)\]", line)[0] for line in lines[:-1]] == codes
    assert lines[-1] == "standard input, taken for a whole speculative config: 3 mistakes"
    code, out, _ = run("validate", "-", "--json", stdin=text)
    assert code == 1
    answer = json.loads(out)
    assert [error["code"] for error in answer["errors"]] == codes
    assert (answer["valid"], answer["block"]) == (False, None)


@pytest.mark.parametrize(
    ("text", "judgement"),
    [
        ('{"method": "ngram"}', "valid, and adaptive verification is off"),
        (
            '{"enable_adaptive_verification": true}',
            "valid, without the block: every default is in force",
        ),
        ('{"enable_adaptive_verification": true, "adaptive_verification_config": {}}', "valid"),
    ],
)
def test_a_judgement_says_what_is_in_force(text: str, judgement: str, run: Run) -> None:
    out = run("validate", "-", stdin=text)[1]
    assert out.endswith(f": {judgement}; {NOT_CHECKED}\n")


def test_a_judgement_counts_the_mistakes_as_far_as_they_are_told(run: Run) -> None:
    assert run("validate", "-", stdin="[1]")[1].endswith(": 1 mistake\n")
    many = json.dumps({f"z{number}": 1 for number in range(200)})
    assert run("validate", "-", stdin=many)[1].endswith(": more than 100 mistakes\n")


def test_a_scorer_of_another_package_is_noted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    other = registry.Source("theirs", "other 1.0", None, lambda: None)
    monkeypatch.setitem(registry._built_in, "theirs", other)
    code, out, _ = run("validate", "-", stdin='{"scorer": "theirs"}')
    assert (code, len(out.splitlines())) == (0, 2)
    assert out.startswith("note: the scorer theirs is of another package: it is imported and che")
    answer = json.loads(run("validate", "-", "--json", stdin='{"scorer": "theirs"}')[1])
    assert "`vllm-av scorers theirs` shows it" in answer["notes"][0]
    assert (
        json.loads(run("validate", "-", "--json", stdin='{"scorer": "max_probability"}')[1])[
            "notes"
        ]
        == []
    )


def test_a_file_s_name_stays_in_its_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "a\nb\x1b.json"
    file.write_text("{}")
    assert run("validate", str(file))[1].endswith(
        'a\\nb\\u001b.json", taken for a bare block: valid\n'
    )
    file.write_text("{")
    assert 'a\\nb\\u001b.json" is not JSON' in run("validate", str(file))[2]


@pytest.mark.parametrize("verb", ["validate", "render"])
def test_what_is_no_json_is_a_wrong_question(verb: str, run: Run) -> None:
    code, out, err = run(verb, "-", stdin='{"scorer": NaN}')
    assert (code, out) == (2, "")
    assert err.startswith("error: [AV-CONFIG-JSON] standard input is not JSON: NaN")
    code, out, err = run(verb, "/dev/null/x", "--json")
    assert (code, err) == (2, "")
    assert json.loads(out)["error"]["code"] == "AV-CONFIG-FILE"


def test_rendered_defaults_are_ready_to_paste(run: Run) -> None:
    code, out, err = run("render")
    assert (code, err) == (0, "")
    block, pasted, drafter = re.split(r"\n\n", out.strip())
    assert json.loads(block) == canonical(AdaptiveVerificationConfig())
    flag, text = shlex.split(pasted)
    assert flag == "--speculative-config"
    assert json.loads(text) == {
        "enable_adaptive_verification": True,
        "adaptive_verification_config": json.loads(block),
    }
    assert "--spec-model" in drafter


def test_a_rendered_config_is_rendered_the_same_again(run: Run) -> None:
    file = str(CONFIGS / "per-position.json")
    answer = json.loads(run("render", file, "--json")[1])
    pasted = shlex.split(answer["argument"])[1]
    assert json.loads(pasted) == answer["speculative_config"]
    assert json.loads(run("render", "-", "--json", stdin=pasted)[1]) == answer


def test_rendering_a_mistake_is_refused(run: Run) -> None:
    code, out, err = run("render", "-", stdin='{"zzz": 1, "scorer": 2}')
    assert (code, out) == (2, "")
    assert err.startswith("error: [AV-CONFIG-KEY] ")
    assert err.endswith("(and 1 more: AV-CONFIG-TYPE)\n")


def _load(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text())


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.json")), ids=lambda file: file.stem)
def test_a_config_of_the_project_is_valid(file: Path, run: Run) -> None:
    code, out, _ = run("validate", str(file))
    assert (code, out) == (
        0,
        f"{file}, taken for a whole speculative config: valid; {NOT_CHECKED}\n",
    )
    spec = _load(file)
    # The drafter is named beside it, and vLLM refuses to be told the same twice.
    assert "model" not in spec
    assert spec["num_speculative_tokens"] > 0
    assert f"`{file.name}`" in (CONFIGS / "README.md").read_text()


def test_every_config_that_is_described_is_there() -> None:
    described = re.findall(r"^\| `([\w-]+\.json)`", (CONFIGS / "README.md").read_text(), re.M)
    assert sorted(described) == sorted(file.name for file in CONFIGS.glob("*.json"))
    assert len(described) > 4


def test_the_config_of_upstream_s_numbers_has_them_all() -> None:
    block = _load(CONFIGS / "upstream.json")["adaptive_verification_config"]
    default = EstimatorConfig().settings("pooled_estimator")
    assert parse_block(block).estimator.settings("pooled_estimator") == default
    filled = canonical(AdaptiveVerificationConfig(scorer="pooled_estimator", exploration=0.0))
    assert block.keys() == filled.keys()
    assert block["estimator"].keys() == filled["estimator"].keys()
