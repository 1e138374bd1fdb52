"""A line that somebody pasted: what is vLLM's of it, and what it is told where nothing is."""

import shlex

import pytest

from vllm_av.errors import CheckError, Code
from vllm_av.preflight.flags import Container, asks_for_json, pasted

SPEC = '{"method": "eagle", "model": "a b"}'
TAIL = ("m", "-sc", SPEC, "-tp", "2")
WRITTEN = f"m -sc '{SPEC}' -tp 2"


@pytest.mark.parametrize(
    ("line", "environment"),
    [
        (WRITTEN, {}),
        (f"vllm serve {WRITTEN}", {}),
        (f"A=1 /opt/x/vllm serve {WRITTEN}", {"A": "1"}),
        (
            f"docker run --gpus all -e V=0 -p 8000:8000 vllm/vllm-openai:latest {WRITTEN}",
            {"V": "0"},
        ),
        (f"sudo docker run --rm -it -eV=0 vllm/vllm-openai:v0.33.0 {WRITTEN}", {"V": "0"}),
        (f"podman run --env=A=1 --env B=x=y docker.io/vllm/vllm-openai {WRITTEN}", {"A": "1"}),
        (f"docker run --rm -it -v /a:/b vllm/vllm-openai vllm serve {WRITTEN}", {}),
        (f"docker run --rm my.registry:5000/own/image vllm serve {WRITTEN}", {}),
        (f"nohup torchrun --nproc 2 vllm serve {WRITTEN}", {}),
        (
            f"A=1 nsys profile --trace cuda python -m vllm.entrypoints.cli.main serve {WRITTEN}",
            {"A": "1"},
        ),
        (f"kubectl exec pod -it -- vllm serve {WRITTEN}", {}),
    ],
)
def test_what_stands_before_the_server_is_taken_off(line: str, environment: dict[str, str]) -> None:
    found = pasted(shlex.split(line))
    assert found.args == TAIL
    assert environment.items() <= found.environment.items()
    # The same between quotes.
    if "serve" in line or "openai" in line:
        assert pasted([line]) == found
        assert pasted(["bash", "-c", line]) == found


def test_several_variables_of_a_container() -> None:
    line = "docker run -e A=1 --env B=x=y -e HF_TOKEN --env=C= -eD=2 vllm/vllm-openai m"
    assert pasted(line.split()).environment == {"A": "1", "B": "x=y", "C": "", "D": "2"}


def test_a_container_has_the_variables_that_it_is_handed() -> None:
    line = "A=1 docker run -e A -e B --env=C -eD=2 --env-file f vllm/vllm-openai:v0.33.0 m"
    found = pasted(line.split())
    assert found.environment == {"A": "1", "D": "2"}
    assert found.container == Container("vllm/vllm-openai:v0.33.0", ("B", "C"), ("--env-file",))
    assert pasted(shlex.split("docker run -it own/image vllm serve m")).container == Container(None)
    assert pasted(["A=1", "vllm", "serve", "m"]).container is None


@pytest.mark.parametrize(
    "words",
    [
        shlex.split("docker run --entrypoint bash vllm/vllm-openai -c 'vllm serve m -tp 2'"),
        ["docker run --entrypoint bash vllm/vllm-openai -c 'A=1; vllm serve m -tp 2 > log'"],
        ['docker run --entrypoint bash vllm/vllm-openai -lc "exec vllm serve m -tp 2"'],
    ],
)
def test_a_line_for_the_shell_of_a_container_is_read(words: list[str]) -> None:
    found = pasted(words)
    assert found.args == ("m", "-tp", "2")
    assert found.container == Container("vllm/vllm-openai")


def test_what_a_shell_of_a_container_runs_is_to_be_pasted() -> None:
    with pytest.raises(CheckError, match="paste what follows -c"):
        pasted(shlex.split("docker run --entrypoint bash vllm/vllm-openai -c ./serve.sh"))


def test_json_within_quotes_is_the_checks() -> None:
    assert pasted(["vllm serve m --json -tp 2"]).args == ("m", "-tp", "2")
    assert asks_for_json(["vllm serve m --json -tp 2"])
    assert not asks_for_json(["vllm serve m -tp 2; jq --json"])
    assert not asks_for_json(["vllm serve m -sc '{"])


@pytest.mark.parametrize(
    "words",
    [
        ["vllm", "serve", "m", "\\", "-tp", "2"],
        ["vllm", "serve", "m", " \\\r", " -tp", "2"],
        ["m", "\\", "-tp", "2"],
        ["vllm serve m \\\n  -tp 2"],
        ["vllm serve m \\  \n  -tp 2 \\\n"],
        ["vllm serve m \\\r\n  -tp 2\r\n"],
        ["  vllm serve m -tp 2 > log.txt 2>&1 &"],
        ["vllm serve m -tp 2 2>&1 | tee log"],
        ["export A=1; vllm serve m -tp 2; echo done"],
        ["vllm serve m -tp 2 # as on Monday"],
    ],
)
def test_the_ends_of_lines_and_what_is_the_shells_are_no_flags(words: list[str]) -> None:
    assert pasted(words).args == ("m", "-tp", "2")


@pytest.mark.parametrize(
    "line",
    [
        "docker run --rm -it image --model m",
        "torchrun --nproc 2 train.py",
        "python3 -m something --model m",
        "A=1 m -tp 2",
    ],
)
def test_what_starts_something_else_is_told_what_to_paste(line: str) -> None:
    with pytest.raises(CheckError) as raised:
        pasted(line.split())
    assert raised.value.code is Code.QUESTION_FLAG
    assert str(raised.value).endswith("paste what follows `vllm serve`")


def test_a_line_that_no_shell_would_take() -> None:
    with pytest.raises(CheckError, match="No closing quotation"):
        pasted(["vllm serve m -sc '{"])


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["org/python-coder", "-tp", "2"],
        ["my model", "--served-model-name", "vllm", "serve"],
        ["m", "--served-model-name", "vllm serve it"],
    ],
)
def test_flags_alone_are_left_as_they_are(words: list[str]) -> None:
    assert pasted(words).args == tuple(words)
