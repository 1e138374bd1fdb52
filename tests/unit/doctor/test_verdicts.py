"""What the check says of a running server; the check is the real one, in its own process."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from vllm_av.doctor import verdicts
from vllm_av.doctor.dists import Installed
from vllm_av.doctor.report import examine
from vllm_av.doctor.servers import Running, Server, Titled
from vllm_av.doctor.verdicts import judge

Look = Callable[[], Installed]
Make = Callable[..., None]

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 512,
    "max_position_embeddings": 128,
    "torch_dtype": "bfloat16",
}
SPECULATIVE = {
    "method": "draft_model",
    "model": "draft",
    "num_speculative_tokens": 3,
    "enable_adaptive_verification": True,
}


@pytest.fixture
def server(tmp_path: Path) -> Server:
    """One whose model and drafter are named relative to its working folder."""
    for name in ("target", "draft"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(LLAMA))
    words = ("target", "--speculative-config", json.dumps(SPECULATIVE), "--api-key", "sk-secret1")
    return Server(7, words, tmp_path, "python", {"VLLM_USE_V2_MODEL_RUNNER": "1"})


def test_a_server_is_judged_in_its_own_folder(server: Server, look: Look) -> None:
    judged = judge(replace(server, arguments=(*server.arguments, "--enable-lora")), look())
    assert judged.says == "no"
    assert [reason["code"] for reason in judged.reasons if reason["weight"] == "refusal"] == [
        "AV-CHECK-LORA"
    ]
    assert "--enable-lora" in judged.lines[0]
    assert "sk-secret1" not in str(judged) + repr(judged) + repr(server)


def test_a_server_is_judged_by_its_own_variables(server: Server, look: Look) -> None:
    judged = judge(replace(server, environ={"VLLM_USE_V2_MODEL_RUNNER": "0"}), look())
    assert judged.says == "no"
    assert "AV-CHECK-RUNNER" in judged.lines[0]
    assert judge(server, look()).says != "no"


def test_of_a_flag_given_twice_the_last_one_counts(server: Server, look: Look) -> None:
    twice = (*server.arguments, "--dtype", "auto", "--enforce-eager", "--dtype", "bfloat16")
    judged = judge(replace(server, arguments=twice), look())
    assert judged.says in ("yes", "no")


def test_a_server_that_goes_on_with_a_fixed_k_says_so(server: Server, look: Look) -> None:
    block = {"adaptive_verification_config": {"on_unsupported": "fixed_k"}}
    words = ("target", "--speculative-config", json.dumps(SPECULATIVE | block), "--enable-lora")
    judged = judge(replace(server, arguments=words), look())
    assert judged.says == "no"
    assert any(line.startswith("note: ") and "fixed_k" in line for line in judged.lines)


def test_where_it_is_switched_off(server: Server, look: Look) -> None:
    judged = judge(replace(server, arguments=("target",)), look())
    assert judged.says == "off"


@pytest.mark.parametrize("arguments", [("gone", *["--port", "1"]), ("target", "--max-num-seqs")])
def test_what_the_check_cannot_answer(
    arguments: tuple[str, ...], server: Server, look: Look
) -> None:
    words = (*arguments, *server.arguments[1:3]) if arguments[0] == "gone" else arguments
    judged = judge(replace(server, arguments=words), look())
    assert (judged.says, len(judged.lines)) == ("not asked", 1)
    assert judged.lines[0].startswith("[AV-QUESTION-")


def test_a_folder_that_has_gone(server: Server, look: Look) -> None:
    judged = judge(replace(server, folder=server.folder / "gone"), look())
    assert judged.says == "not asked"
    assert "gone" in judged.lines[0]


def test_a_container_is_left_to_itself(server: Server, look: Look) -> None:
    judged = judge(replace(server, elsewhere=True), look())
    assert (judged.says, judged.vllm) == ("not asked", "another file system")


def test_a_check_that_takes_too_long(
    server: Server, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "PATIENCE", 0.01)
    assert judge(server, look()).lines == ("no answer in 0.01 seconds",)


@pytest.mark.parametrize(
    ("version", "told"),
    [("0.33.0", "vLLM 0.33.0 of {}, taken for patched"), ("0.9.1", "vLLM 0.9.1 of {}, judged as")],
)
def test_another_environment_is_judged_by_its_own_vllm(
    version: str, told: str, server: Server, look: Look
) -> None:
    other = server.folder / "other"
    info = other / f"lib/python3.11/site-packages/vllm-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    judged = judge(replace(server, python=f"{other}/bin/python"), look())
    assert judged.vllm.startswith(told.format(other))
    assert judged.says in ("yes", "unknown")


def test_the_report_holds_servers_and_other_engines(server: Server, look: Look) -> None:
    running = Running((replace(server, elsewhere=True),), (Titled(8, "VLLM::EngineCore"),))
    answer = examine({}, None, look(), None, running).as_dict()
    assert [each["says"] for each in answer["servers"]] == ["not asked"]
    assert answer["other_engines"] == [{"pid": 8, "title": "VLLM::EngineCore"}]
    assert answer["flashinfer"]["version"] is None


def test_the_doctor_works_where_the_check_cannot_be_loaded() -> None:
    program = """
import sys
sys.modules["pydantic"] = None
from vllm_av.doctor import examine
assert "vllm_av.preflight.check" not in sys.modules
assert examine().as_dict()["attention"]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
