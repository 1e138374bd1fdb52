"""``vllm-av check``, as it is called: its exit codes, its one-line mistakes, what it imports."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.preflight.rules.checkpoints import write
from vllm_av.cli import app as cli

Run = Callable[..., tuple[int, str, str]]
SPEC = {"method": "eagle", "num_speculative_tokens": 3, "enable_adaptive_verification": True}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            cli.main(["check", "--capabilities", "table", "--vllm-version", "0.33.0", *args])
        out, err = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, out, err

    return call


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    """A target, and the flag with its drafter."""
    model = write(tmp_path, "llama-3.1-8b")
    return [model, "--speculative-config", spec(tmp_path)]


def spec(folder: Path, **changes: object) -> str:
    """The speculative config; a key that is to go is None."""
    whole = {**SPEC, "model": write(folder, "llama-3-8b-eagle"), **changes}
    return json.dumps({key: value for key, value in whole.items() if value is not None})


FEW = ("--max-num-seqs", "32", "--gpu", "h100")
_FLASH = (
    "  32 layers of full attention (num_hidden_layers): FLASH_ATTN (FA3), takes trimmed lengths, "
    "graphs ALWAYS; flash_attn.py:619"
)


def test_yes_is_zero(run: Run, pair: list[str]) -> None:
    code, out, err = run(*pair, *FEW)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"yes: adaptive verification of {pair[0]}, drafts by eagle, K = 3, on h100 "
        + out.split(" on h100 ")[1].splitlines()[0],
        "attention backends, by this package's table of vLLM 0.33.0",
        _FLASH,
        "scorer: online_estimator (the drafter's checkpoint has no confidence head)",
    ]


def test_no_is_one_and_every_reason_is_a_line(run: Run, pair: list[str]) -> None:
    code, out, err = run(*pair, *FEW, "--enable-lora", "-pp", "2", "-O0", "--host", "::1")
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert lines[0].startswith("no: ")
    assert lines[0].endswith(": 3 refusals")
    assert [line.split("]")[0] for line in lines[1:4]] == [
        "  refusal: [AV-CHECK-GRAPHS",
        "  refusal: [AV-CHECK-LORA",
        "  refusal: [AV-CHECK-PIPELINE",
    ]
    assert lines[-1] == "not looked at: --host"


def test_unknown_is_one_too_and_says_so(run: Run, pair: list[str]) -> None:
    ray = ("--distributed-executor-backend", "ray", "--max-num-seqs", "32")
    code, out, _ = run(*pair, *ray)
    assert code == 1
    assert out.startswith("unknown: ")
    assert "[AV-CHECK-ELSEWHERE]" in out
    assert run(*pair, *ray, "--gpu", "h100")[0] == 0


def test_an_answer_for_programs(run: Run, pair: list[str]) -> None:
    code, out, _ = run(*pair, *FEW, "--enable-lora", "--port", "80", "--json")
    answer = json.loads(out)
    assert code == 1
    assert answer["verdict"] == "no"
    (reason,) = answer["reasons"]
    assert reason["code"] == "AV-CHECK-LORA"
    assert reason["changes"] == [{"part": "flag", "name": "enable-lora", "value": None}]
    assert answer["scorer"]["name"] == "online_estimator"
    assert answer["layers"][0]["chosen"]["name"] == "FLASH_ATTN"
    assert answer["gpu"] == {"name": "h100", "platform": "cuda", "capability": [9, 0]}
    assert answer["not_looked_at"] == ["--port"]
    assert answer["settings"]["max_num_seqs"] == 32


def test_a_pasted_command_line_with_its_variables(run: Run, pair: list[str]) -> None:
    line = ["VLLM_USE_V2_MODEL_RUNNER=0", "vllm", "serve", *pair, *FEW[:2]]
    code, out, _ = run("--gpu", "h100", *line)
    assert code == 1
    assert "[AV-CHECK-RUNNER]" in out


ODD = "x\udcff\n\u202e\x1b[31m\u00e9" + "y" * 5000


def test_whatever_is_named_an_answer_is_lines_of_ascii(
    run: Run, pair: list[str], tmp_path: Path
) -> None:
    file = Path(pair[0]) / "config.json"
    config = {**json.loads(file.read_text()), "architectures": [ODD]}
    odd = tmp_path / "m\udcff\n\u202e\u00e9"
    odd.mkdir()
    (odd / "config.json").write_text(json.dumps(config))
    block = {"scorer": ODD, ODD: 1}
    draft = spec(tmp_path, adaptive_verification_config=block)
    args = [str(odd), "--speculative-config", draft, "--gpu", "h100", f"--{ODD}", "1"]
    code, out, err = run(*args)
    assert (code, err) == (1, "")
    assert out.isascii()
    lines = out.splitlines()
    assert lines == out.removesuffix("\n").split("\n")
    assert all(line.isprintable() and len(line) <= 4000 for line in lines)
    assert lines[0].startswith("no: adaptive verification of ")
    starts = {line.split(":")[0].strip() for line in lines}
    assert starts <= {"no", "refusal", "unknown", "caution", "scorer", "not looked at"} | {
        "attention backends, by this package's table of vLLM 0.33.0"
    }
    assert "\\u202e" in lines[0]
    told = json.loads(run(*args, "--json")[1])
    assert told["model"]["architecture"] == ODD
    assert told["not_looked_at"] == [f"--{ODD}"]


@pytest.mark.parametrize("option", ["--gpu", "--capabilities", "--vllm-version", "-tp", "--config"])
def test_a_wrong_value_is_shown_short_and_quoted(run: Run, pair: list[str], option: str) -> None:
    code, _, err = run(*pair, option, ODD)
    assert code == 2
    assert err.isascii()
    assert err.count("\n") == 1
    assert len(err) < 700
    assert '"x\\udcff' in err


def test_a_flag_of_any_name_is_shown_short(run: Run, pair: list[str]) -> None:
    for word in (f"--speculative-config.{ODD}", f"-tp.{ODD}=1", f"-cc.mode.{ODD}=NaN", f"-{ODD}"):
        code, _, err = run(*pair, word)
        assert code == 2
        assert err.isascii()
        assert len(err) < 900


def test_the_line_of_a_container_and_one_between_quotes(run: Run, pair: list[str]) -> None:
    before = ["docker", "run", "--gpus", "all", "-e", "VLLM_USE_V2_MODEL_RUNNER=0", "--rm", "-it"]
    line = [*before, "-p", "8000:8000", "vllm/vllm-openai:latest", "--model", *pair, *FEW[:2]]
    code, out, _ = run("--gpu", "h100", *line)
    assert code == 1
    assert "[AV-CHECK-RUNNER]" in out
    assert run("--gpu", "h100", shlex.join(line)) == (1, out, "")


def test_json_between_quotes_is_honoured(run: Run, pair: list[str]) -> None:
    line = shlex.join(["vllm", "serve", *pair, *FEW[:2]])
    code, out, _ = run("--gpu", "h100", f"{line} --json")
    assert (code, json.loads(out)["verdict"]) == (0, "yes")
    code, out, err = run("--gpu", "h100", f"{line} --json --enable-lorra")
    assert (code, err) == (2, "")
    assert json.loads(out)["error"]["code"] == "AV-QUESTION-FLAG"


@pytest.mark.parametrize(
    "option", [("--gpu", "h100"), ("--capabilities", "table"), ("--vllm-version", "0.33.0")]
)
def test_an_option_of_its_own_is_given_once(
    option: tuple[str, str], run: Run, pair: list[str]
) -> None:
    code, _, err = run(*pair, *option, *option)
    assert code == 2
    assert f"{option[0]} is given twice" in err


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ([], "AV-QUESTION-SPEC"),
        (["MODEL"], "AV-QUESTION-SPEC"),
        (["MODEL", "--speculative-config", "{}"], "AV-QUESTION-SPEC"),
        (["--speculative-config", "SPEC"], "AV-QUESTION-MODEL"),
        (["/no/such/folder", "--speculative-config", "SPEC"], "AV-QUESTION-MODEL"),
        (["no-such/hub-name", "--speculative-config", "SPEC"], "AV-QUESTION-MODEL"),
        (["EMPTY", "--speculative-config", "SPEC"], "AV-QUESTION-MODEL"),
        (["HALF", "--speculative-config", "SPEC"], "AV-QUESTION-MODEL"),
        (["LIST", "--speculative-config", "SPEC"], "AV-QUESTION-MODEL"),
        (["BINARY", "--speculative-config", "SPEC"], "AV-QUESTION-MODEL"),
        (["MODEL", "--speculative-config", "SPEC", "--gpu", "h1000"], "AV-QUESTION-GPU"),
        (["MODEL", "--speculative-config", "SPEC", "--gpu", ""], "AV-QUESTION-GPU"),
        (["MODEL", "--speculative-config", '{"method": "eag'], "AV-QUESTION-FLAG"),
        (["MODEL", "--speculative-config", "[1]"], "AV-QUESTION-FLAG"),
        (["MODEL", "--speculative-config"], "AV-QUESTION-FLAG"),
        (["MODEL", "--speculative-confg", "SPEC"], "AV-QUESTION-FLAG"),
        (["MODEL", "--speculative-config", "SPEC", "--enable-lorra"], "AV-QUESTION-FLAG"),
        (["MODEL", "--speculative-config", "SPEC", "-tp", "2", "-tp", "4"], "AV-QUESTION-FLAG"),
        (["MODEL", "--speculative-config", "SPEC", "-tp", "x"], "AV-QUESTION-FLAG"),
        (
            ["MODEL", "--speculative-config", "SPEC", "--speculative-config", "SPEC"],
            "AV-QUESTION-FLAG",
        ),
        (["MODEL", "--speculative-config", "SPEC", "more"], "AV-QUESTION-FLAG"),
        (
            ["MODEL", "--speculative-config", "SPEC", "--attention-backend", "FLSH_ATTN"],
            "AV-QUESTION-FLAG",
        ),
        (
            ["MODEL", "--speculative-config", "SPEC", "-ac.backend_per_kind.x=FLSH_ATTN"],
            "AV-QUESTION-FLAG",
        ),
        (["MODEL", "--speculative-config", "SPEC", "-ac.backend_per_kind=1"], "AV-QUESTION-FLAG"),
        (
            [
                *("MODEL", "--speculative-config", "SPEC", "--max-cudagraph-capture-size", "64"),
                "-cc.max_cudagraph_capture_size=64",
            ],
            "AV-QUESTION-FLAG",
        ),
        (
            [
                *("MODEL", "--speculative-config", "SPEC", "-ac.backend=FLASH_ATTN"),
                *("--attention-backend", "FLASH_ATTN"),
            ],
            "AV-QUESTION-FLAG",
        ),
        (["MODEL", "--speculative-config", "SPEC", "--capabilities", "gpu"], "AV-QUESTION-FLAG"),
        (["MODEL", "--speculative-config", "SPEC", "--vllm-version", "9"], "AV-QUESTION-FLAG"),
        (["MODEL", "--speculative-config", "SPEC", "--config", "no.yaml"], "AV-QUESTION-FLAG"),
    ],
)
def test_a_wrong_question_is_one_line(
    args: list[str], code: str, run: Run, tmp_path: Path, pair: list[str]
) -> None:
    for name, content in (("HALF", b'{"architectures": ['), ("LIST", b"[]"), ("BINARY", b"\xff\0")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_bytes(content)
    (tmp_path / "EMPTY").mkdir()
    meant = {"MODEL": pair[0], "SPEC": pair[2]}
    meant |= {name: str(tmp_path / name) for name in ("EMPTY", "HALF", "LIST", "BINARY")}
    one_line([meant.get(word, word) for word in args], code, run)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"num_speculative_tokens": 0}, "AV-QUESTION-SPEC"),
        ({"num_speculative_tokens": -1}, "AV-QUESTION-SPEC"),
        ({"num_speculative_tokens": 10**9}, "AV-QUESTION-SPEC"),
        ({"num_speculative_tokens": 10**400}, "AV-QUESTION-SPEC"),
        ({"num_speculative_tokens": 2.5}, "AV-QUESTION-SPEC"),
        ({"num_speculative_tokens": "many"}, "AV-QUESTION-SPEC"),
        ({"num_speculative_tokens": [3]}, "AV-QUESTION-SPEC"),
        ({"num_speculative_tokens": None}, "AV-QUESTION-SPEC"),
        ({"enable_adaptive_verification": False}, "AV-QUESTION-SPEC"),
        ({"enable_adaptive_verification": None}, "AV-QUESTION-SPEC"),
        ({"enable-adaptive-verification": True}, "AV-QUESTION-SPEC"),
        ({"model": "/no/such/folder"}, "AV-QUESTION-DRAFT"),
        ({"model": 7}, "AV-QUESTION-SPEC"),
        ({"model": None}, "AV-QUESTION-SPEC"),
        ({"method": ["eagle"]}, "AV-QUESTION-SPEC"),
    ],
)
def test_a_wrong_speculative_config_is_one_line(
    changes: dict[str, object], code: str, run: Run, tmp_path: Path
) -> None:
    model = write(tmp_path, "llama-3.1-8b")
    one_line([model, "--speculative-config", spec(tmp_path, **changes)], code, run)


def one_line(args: list[str], code: str, run: Run) -> None:
    left, out, err = run(*args)
    assert (left, out) == (2, "")
    assert err.startswith(f"error: [{code}] ")
    assert err.count("\n") == 1
    left, out, err = run(*args, "--json")
    assert (left, err) == (2, "")
    assert json.loads(out)["error"]["code"] == code


@pytest.mark.parametrize("more", [(), ("--json",)])
@pytest.mark.parametrize(
    ("changed", "left"),
    [((), 0), (("--enable-lora",), 1), (("--enable-lorra",), 2)],
)
def test_where_nobody_reads_the_verdict_is_the_exit_code_all_the_same(
    changed: tuple[str, ...], left: int, more: tuple[str, ...], pair: list[str]
) -> None:
    args = ["check", "--capabilities", "table", "--vllm-version", "0.33.0", *pair, *FEW]
    child = subprocess.Popen(
        [sys.executable, "-m", "vllm_av", *args, *changed, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.wait(timeout=30) == left
        told = child.stderr.read()
        assert told.startswith("error: ") if left == 2 and not more else told == ""


def test_a_request_whose_drafts_outgrow_the_graphs(
    run: Run, pair: list[str], tmp_path: Path
) -> None:
    args = [pair[0], "--gpu", "h100", "--max-num-seqs", "4", "--speculative-config"]
    told = [run(*args, spec(tmp_path, num_speculative_tokens=count))[1] for count in (1023, 300)]
    assert "a decode step of a single request with all its drafts runs" in told[0]
    assert "a decode step of more than 1 request with all" in told[1]


def test_by_the_table_neither_torch_nor_vllm_is_imported(pair: list[str]) -> None:
    code = (
        "import sys\n"
        "from vllm_av.cli.app import main\n"
        "try:\n"
        "    main(sys.argv[1:])\n"
        "except SystemExit as left:\n"
        "    heavy = {'torch', 'vllm', 'transformers', 'numba', 'triton'} & set(sys.modules)\n"
        "    print(left.code, sorted(heavy))\n"
    )
    args = ["check", "--capabilities", "table", *pair, *FEW]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, env=environ, check=True
    )
    assert done.stdout.splitlines()[-1] == "0 []"
