"""``vllm-av trace record``: a wrong option is one line, and nothing starts."""

import json
from pathlib import Path

import pytest

from vllm_av.cli.app import main
from vllm_av.errors import TraceError
from vllm_av.replay.asked import Asked, from_file, held_out


def _refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as leaving:
        main(["trace", "record", *arguments])
    assert leaving.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    return err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--temperature", "0.001"], "[AV-TRACE-OPTION] --temperature 0.001; "),
        (["--temperature", "nan"], "[AV-TRACE-OPTION] --temperature nan; "),
        (["--concurrency", "0"], "[AV-TRACE-OPTION] --concurrency 0; "),
        (["--request-steps", "0"], "[AV-TRACE-OPTION] --request-steps 0; "),
        (["--seed", "-1"], "[AV-TRACE-OPTION] --seed -1; "),
        (["--seed", "9" * 30], "[AV-TRACE-OPTION] --seed 9999"),
        (["--workload", "poems"], "[AV-TRACE-OPTION] --workload poems; "),
        (["--drafter", "eagel"], "[AV-DEMO-OPTION] --drafter eagel; "),
        (["--num-speculative-tokens", "9"], "[AV-DEMO-OPTION] --num-speculative-tokens 9; "),
        (["--model", "x"], "[AV-TRACE-OPTION] a pair of your own, with an option missing"),
        (["--prompts", "x"], "[AV-TRACE-OPTION] a pair of your own, with an option missing"),
        (
            ["--model", "x", "--speculative-config", "{", "--prompts", "y"],
            "[AV-CONFIG-JSON] --speculative-config is not JSON",
        ),
        (
            ["--model", "x", "--speculative-config", "[]", "--prompts", "y"],
            "[AV-CONFIG-OBJECT] ",
        ),
        (
            [
                *("--model", "x", "--prompts", "y", "--speculative-config"),
                '{"adaptive_verification_config": 5}',
            ],
            "[AV-CONFIG-OBJECT] ",
        ),
        (
            ["--model", "x", "--speculative-config", "{}", "--prompts", "/nowhere/y"],
            "[AV-TRACE-PROMPTS] /nowhere/y holds no prompts: ",
        ),
    ],
)
def test_a_wrong_option(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = _refused(capsys, "--out", str(tmp_path / "t"), *arguments)
    assert line.startswith("error: ")
    assert words in line
    assert not (tmp_path / "t").exists()


def test_a_folder_that_holds_something(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").touch()
    assert "[AV-TRACE-WRITE]" in _refused(capsys, "--out", str(tmp_path))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "it is empty"),
        (["{"], "Expecting property name"),
        (["5"], "prompt 1 is none"),
        (['"a"', '{"txt": "b"}'], "prompt 2 is none"),
        (['{"text": "b", "workload": 5}'], "prompt 1 is none"),
        (['{"text": "b", "more": "c"}'], "prompt 1 is none"),
    ],
)
def test_a_file_that_holds_no_prompts(lines: list[str], words: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    file.write_text("\n".join(lines))
    with pytest.raises(TraceError, match=words) as caught:
        from_file(file)
    assert caught.value.code == "AV-TRACE-PROMPTS"


def test_prompts_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    file.write_text('"a\\nb"\n\n' + json.dumps({"text": "c", "workload": "w"}))
    assert from_file(file) == [Asked(None, "a\nb", chat=True), Asked("w", "c", chat=True)]


class _Tokenizer:
    chat_template = "yes"

    def apply_chat_template(self, messages: list[dict[str, str]], **_: object) -> str:
        return f"<{messages[0]['content']}>"

    def encode(self, text: str) -> list[int]:
        return [ord(each) for each in text]


def test_no_prompt_is_asked_twice_in_the_same_words() -> None:
    tokenizer = _Tokenizer()
    for asked in (*held_out(["humaneval", "code"])[::12], Asked(None, "a", chat=True)):
        asked_first = asked.tokens(tokenizer, 0)
        texts = {tuple(asked.tokens(tokenizer, again)) for again in range(3)}
        assert len(texts) == 3
        whole = f"<{asked.text}>" if asked.chat else asked.text
        assert asked_first == [ord(each) for each in whole]
