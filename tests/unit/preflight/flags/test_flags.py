"""A command line is read as vLLM's own parser reads it, and a mistake in it is one line."""

import json
import os
import time
from pathlib import Path

import pytest

from vllm_av.errors import CheckError, Code
from vllm_av.preflight.flags import parse, serve_arguments
from vllm_av.preflight.flags.known import LISTS, PLAIN, SHORT, SWITCHES, VALUES
from vllm_av.preflight.flags.values import LOOKED_AT


def values(*args: str) -> dict[str, object]:
    return dict(parse(args).values)


def mistake(*args: str) -> CheckError:
    with pytest.raises(CheckError) as raised:
        parse(args)
    assert raised.value.code is Code.QUESTION_FLAG
    assert "\n" not in str(raised.value)
    return raised.value


@pytest.mark.parametrize(
    ("args", "name", "value"),
    [
        (["--max-num-seqs", "64"], "max_num_seqs", 64),
        (["--max_num_seqs=64"], "max_num_seqs", 64),
        (["--max-num-seq", "64"], "max_num_seqs", 64),  # argparse completes it
        (["-tp", "4"], "tensor_parallel_size", 4),
        (["-tp=4"], "tensor_parallel_size", 4),
        (["-dcp", "2"], "decode_context_parallel_size", 2),
        (["--max-num-batched-tokens", "8k"], "max_num_batched_tokens", 8000),
        (["--max-num-batched-tokens", "8K"], "max_num_batched_tokens", 8192),
        (["--max-num-batched-tokens", "2.5k"], "max_num_batched_tokens", 2500),
        (["--max-model-len", "-1"], "max_model_len", None),
        (["--max-model-len", "auto"], "max_model_len", None),
        (["-O3"], "optimization_level", 3),
        (["--distributed-executor-backend", "ray"], "distributed_executor_backend", "ray"),
        (["--distributed-executor-backend", "my.Own"], "distributed_executor_backend", "my.Own"),
        (["--distributed-executor-backend", "None"], "distributed_executor_backend", None),
        (["-O", "0"], "optimization_level", 0),
        (["-O=1"], "optimization_level", 1),
        (["--optimization-level", "O2"], "optimization_level", 2),
        (["--enable-lora"], "enable_lora", True),
        (["--no-enable-lora"], "enable_lora", False),
        (["--disable-lora"], "enable_lora", False),
        (["--no-enforce-eager"], "enforce_eager", False),
        (["--attention-backend", "auto"], "attention_backend", None),
        (["--cudagraph-capture-sizes", "1", "2", "4"], "cudagraph_capture_sizes", [1, 2, 4]),
        (["-cc", '{"mode": 0}'], "compilation_config", {"mode": 0}),
        (["-cc.cudagraph_mode=FULL"], "compilation_config", {"cudagraph_mode": "FULL"}),
        (
            ["-cc.a.b", "1", "-cc.a.c=true", "-cc.d+=x,y", "-cc.d+", "z"],
            "compilation_config",
            {"a": {"b": 1, "c": True}, "d": ["x", "y", "z"]},
        ),
        (["--spec-method", "mtp"], "speculative_config", {"method": "mtp"}),
        (
            ["--speculative-config.num-speculative-tokens", "5", "--speculative-config.a=x"],
            "speculative_config",
            {"num-speculative-tokens": 5, "a": "x"},
        ),
        (["-sc", '{"model": "d"}', "--spec-tokens", "4"], "speculative_config", None),
        (["--attention-config", "none"], "attention_config", {}),
        (["-cc", '{"mode": null, "x": {"y": null}}'], "compilation_config", {"x": {}}),
    ],
)
def test_a_flag_is_read_as_vllm_reads_it(args: list[str], name: str, value: object) -> None:
    expected = {"model": "d", "num_speculative_tokens": 4} if "-sc" in args else value
    assert values("m", *args) == {"model": "m", name: expected}


def test_where_a_value_comes_from_is_as_it_was_written() -> None:
    flags = parse(["m", "-tp", "2", "-cc.cudagraph_mode", "FULL", "-cc.mode=3"])
    assert flags.place("tensor_parallel_size") == "-tp"
    assert flags.place("compilation_config", "cudagraph_mode") == "-cc.cudagraph_mode"
    assert flags.place("max_num_seqs") is None
    whole = parse(["m", "--compilation-config", '{"mode": 3}'])
    assert whole.place("compilation_config", "mode") == "mode in --compilation-config"


def test_flags_that_do_not_matter_are_named_and_their_values_skipped() -> None:
    line = (
        "m --host 0.0.0.0 --port 8000 --api-key a b --hf-token --seed -1 --trust-remote-code "
        "--served-model-name x y --enable-quantum-mode 3 --middleware a --middleware b"
    )
    flags = parse(line.split())
    assert flags.values == {"model": "m"}
    assert flags.not_looked_at == (
        "--host",
        "--port",
        "--api-key",
        "--hf-token",
        "--seed",
        "--trust-remote-code",
        "--served-model-name",
        "--enable-quantum-mode",
        "--middleware",
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--max-nmu-seqs", "5"], "write --max-num-seqs"),
        (["--speculative-confg", "{}"], "write --speculative-config"),
        (["--enable-lorra"], "write --enable-lora"),
        (["--tensor_paralel_size", "2"], "write --tensor-parallel-size"),
        (["--trust-remote-cod3"], "write --trust-remote-code"),
        (["-tpp", "2"], "the short names"),
        (["--tensor-parallel-size"], "is given no value"),
        (["--tensor-parallel-size", "--enable-lora"], "is given no value"),
        (["--cudagraph-capture-sizes"], "is given no value"),
        (["-tp", "0"], "a whole number from 1 to"),
        (["-tp", "two"], "a whole number from 1 to"),
        (["-tp", "1.5"], "a whole number from 1 to"),
        (["--max-model-len", "-5"], "or -1 or auto"),
        (["--max-model-len", "x"], "or -1 or auto"),
        (["--max-num-seqs", "-4"], "a whole number from 1 to"),
        (["--max-num-seqs", "9" * 5000], "a whole number from 1 to"),
        (["--max-num-batched-tokens", "1.5K"], "a whole number from 1 to"),
        (["--cudagraph-capture-sizes", "8", "x"], "a whole number from 1 to"),
        (["-O9"], "one of 0, 1, 2, 3"),
        (["--enable-lora=true"], "write --enable-lora alone"),
        (["-cc", "{"], "is not JSON"),
        (["-cc", "[1]"], "a JSON object"),
        (["-cc", '{"mode": NaN}'], "is not JSON"),
        (["-cc", '{"mode": 0, "mode": 1}'], "is given twice"),
        (["-cc", "[" * 100_000], "is not JSON"),
        (["-tp.x", "1"], "gives a key of a flag that has none"),
        (["--enable-lora.x", "1"], "gives a key of a flag that has none"),
        (["--revision", " "], "a name"),
        (["-cc.max_cudagraph_capture_size=big"], "a whole number from 1 on"),
        (["-cc", '{"cudagraph_capture_sizes": [8, "x"]}'], "a list of whole numbers"),
        (["-cc", '{"pass_config": 3}'], "pass_config in -cc is 3; an object"),
        (["-ac.flash_attn_version=5"], "2, 3 or 4"),
        (["-ac.backend=7"], "backend in -ac is 7; a name"),
        (["--kv-transfer-config.kv_connector_extra_config=1"], "an object"),
        (["--dtype", "bf16"], "one of auto, bfloat16"),
        (["--performance-mode", "fast"], "one of balanced"),
        (["--distributed-executor-backend", "foo"], "one of external_launcher, mp, ray, uni"),
        (["--distributed-executor-backend", "auto"], "one of external_launcher, mp, ray, uni"),
        (["--distributed-executor-backend", "a..b"], "one of external_launcher, mp, ray, uni"),
        (["second"], "belongs to no flag"),
        (["--", "x"], "there is a word --"),
        (["--model", "n"], "are both given"),
        (["-tp", "2", "--tensor-parallel-size", "2"], "are both given"),
        (["-tp", "2", "-tp", "4"], "-tp is given twice"),
        (["--enable-lora", "--no-enable-lora"], "are both given"),
        (["-cc", "{}", "-cc.mode=0"], "are both given"),
        (["-cc.mode=0", "--compilation-config.x=1"], "are both given"),
        (["-cc.mode=0", "-cc.mode=1"], "is given twice"),
        (["--spec-method", "mtp", "-sc", '{"method": "eagle"}'], "are both given"),
        (["--config", "no/such/file.yaml"], "No such file"),
    ],
)
def test_a_mistake_is_one_line(args: list[str], said: str) -> None:
    assert said in str(mistake("m", *args))


def test_of_a_server_that_runs_the_last_one_counts() -> None:
    args = ["m", "-tp", "2", "-cc", '{"mode": 0}', "--tensor-parallel-size", "4", "-cc.mode=3"]
    flags = parse(args, strict=False)
    assert flags.values == {
        "model": "m",
        "tensor_parallel_size": 4,
        "compilation_config": {"mode": 3},
    }
    assert flags.dropped == ("-tp", "-cc")


def test_a_file_of_flags_stands_behind_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "vllm.yaml"
    file.write_text(
        "model: m\n"
        "tensor-parallel-size: 4\n"
        "max_num_seqs: 64\n"
        "enable-lora: true\n"
        "enforce-eager: false\n"
        "trust-remote-code: false\n"
        "served-model-name: [a, b]\n"
        "speculative-config:\n  method: mtp\n  num_speculative_tokens: 3\n"
    )
    flags = parse(["--config", str(file), "-tp", "8"])
    assert flags.values == {
        "model": "m",
        "tensor_parallel_size": 8,
        "max_num_seqs": 64,
        "enable_lora": True,
        "enforce_eager": False,
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 3},
    }
    assert flags.place("max_num_seqs") == f"max-num-seqs in {file}"
    assert flags.place("tensor_parallel_size") == "-tp"


@pytest.mark.parametrize("text", ["[1, 2]", "just text", "1: 2", "a: [", "\x00", "a: !!python/x y"])
def test_a_file_that_holds_no_flags_is_a_mistake(text: str, tmp_path: Path) -> None:
    file = tmp_path / "vllm.yaml"
    file.write_text(text)
    assert "cannot be read" in str(mistake("--config", str(file)))


_BOMB = "a: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 8)
)
_MERGED = "a: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 8)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("additional-config: {2001-01-01: 3}", 'under "additional-config" has no JSON form'),
        ("additional-config: {x: 2001-01-01}", 'under "additional-config" has no JSON form'),
        ("additional-config: &a {x: *a}", "it holds itself"),
        (f"max-num-seqs: 0x{'f' * 5000}", 'under "max-num-seqs" has no JSON form'),
        (f"max-num-seqs: {'9' * 5000}", "not what it is said to be"),
        ("seed: 2001-99-99", "not what it is said to be"),
        ("seed: !!timestamp x", "not what it is said to be"),
        ("seed: !!int ''", "not what it is said to be"),
        (_BOMB, "more than 10,000 values"),
        (_MERGED, "more than 10,000 values"),
        ("x: [" + "1, " * 50_000 + "]", "more than 10,000 values"),
        ("x: " + "[" * 5000 + "]" * 5000, "more than 32 deep"),
        ("x: " + "{a: " * 40 + "1" + "}" * 40, "more than 32 deep"),
        ("max-num-seqs: 4\nmax-num-seqs: 8", 'the key "max-num-seqs" stands twice'),
        ("speculative-config:\n  a: 1\n  a: 2", 'the key "a" stands twice'),
        ("# " + "x" * (256 << 10), "more than 256 KiB"),
        ("a: 1\n---\nb: 2", "it is not YAML"),
        ("", "no mapping"),
    ],
)
def test_a_file_that_nobody_would_write_is_one_line_at_once(
    text: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "vllm.yaml"
    file.write_text(text)
    before = time.process_time()
    assert said in str(mistake("--config", str(file)))
    assert time.process_time() - before < 3


def test_a_pipe_in_place_of_a_file_of_flags(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "vllm.yaml")
    assert "no regular file" in str(mistake("--config", str(tmp_path / "vllm.yaml")))


def test_a_file_of_another_name_is_none_to_vllm(tmp_path: Path) -> None:
    (tmp_path / "vllm.json").write_text("{}")
    assert "name it .yaml or .yml" in str(mistake("--config", str(tmp_path / "vllm.json")))


def test_what_an_alias_stands_for_is_read(tmp_path: Path) -> None:
    file = tmp_path / "vllm.yml"
    file.write_text(
        "additional-config: {x: &a {k: 1}, y: *a, z: {<<: *a, l: 2}}\nmax-num-seqs: 4\n"
    )
    assert values("--config", str(file)) == {
        "additional_config": {"x": {"k": 1}, "y": {"k": 1}, "z": {"k": 1, "l": 2}},
        "max_num_seqs": 4,
    }


def test_of_a_server_that_runs_the_last_key_counts(tmp_path: Path) -> None:
    file = tmp_path / "vllm.yaml"
    file.write_text("max-num-seqs: 4\nmax-num-seqs: 8\n")
    assert parse(["--config", str(file)], strict=False).values == {"max_num_seqs": 8}


@pytest.mark.parametrize(
    ("line", "args", "environment"),
    [
        ("vllm serve m -tp 2", ("m", "-tp", "2"), {}),
        ("/usr/bin/python3 /env/bin/vllm serve m", ("m",), {}),
        ("A=1 VLLM_B=x=y vllm serve m", ("m",), {"A": "1", "VLLM_B": "x=y"}),
        ("env A=1 nohup vllm serve m", ("m",), {"A": "1"}),
        ("python -m vllm.entrypoints.openai.api_server --model m", ("--model", "m"), {}),
        ("python -m vllm.entrypoints.cli.main serve m", ("m",), {}),
    ],
)
def test_a_pasted_command_line(line: str, args: tuple[str, ...], environment: object) -> None:
    served = serve_arguments(line.split())
    assert served is not None
    assert (served.args, served.environment) == (args, environment)


@pytest.mark.parametrize(
    "line", ["m --speculative-config {}", "vllm bench", "--model vllm serve", "", "vllm", "-m"]
)
def test_what_is_no_server(line: str) -> None:
    assert serve_arguments(line.split()) is None


def test_the_lists_do_not_overlap_and_hold_what_is_looked_at() -> None:
    lists = (SWITCHES, PLAIN, LISTS, VALUES)
    names = [name for each in lists for name in each]
    assert len(names) == len(set(names))
    assert set(LOOKED_AT) <= set(names)
    assert set(SHORT.values()) <= set(names)


def test_every_value_that_is_looked_at_survives_json() -> None:
    flags = parse(["m", "-tp", "2", "-cc.mode=3", "--enable-lora", "--spec-tokens", "4"])
    assert json.loads(json.dumps(dict(flags.values))) == flags.values
