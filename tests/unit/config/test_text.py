"""JSON read strictly; values shown shortened."""

from pathlib import Path
from typing import Any

import pytest

from vllm_av.config.text import read_file, read_object, shown
from vllm_av.errors import Code, ConfigError


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (float("nan"), "NaN"),
        ("a\nb\x1b", '"a\\nb\\u001b"'),
        ({"a": [1, 2]}, '{"a": [1, 2]}'),
        ({1: 2}, '{"1": 2}'),
        ({1, 2}, '"{1, 2}"'),
        (Rude(), '"<Rude>"'),
        pytest.param(10**5000, "<int, not shown>", id="endless"),
        ({(1, 2): 3}, "<dict, not shown>"),
        ([0] * 10**6, "[" + "0, " * 18 + "0,..."),
    ],
)
def test_a_value_is_shown_in_few_characters(value: Any, text: str) -> None:
    assert shown(value) == text
    assert len(text) <= 60


def test_a_structure_within_itself_is_shown() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert shown(endless)


def test_json_is_read() -> None:
    assert read_object('{"a": [1, 2.5, null, true, "x"]}', "x") == {"a": [1, 2.5, None, True, "x"]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Expecting value at line 1, column 1"),
        ('{"a": 1,}', "Illegal trailing comma|Expecting property name"),
        ("{'a': 1}", "Expecting property name enclosed in double quotes at line 1, column 2"),
        ('{"a": 1} {}', "Extra data"),
        ('{"a": NaN}', "NaN is no JSON number"),
        ('{"a": -Infinity}', "-Infinity is no JSON number"),
        ('{"a": {"b": 1, "b": 2}}', 'the key "b" is given twice'),
        ('{"a": ' + "1" * 5000 + "}", "a number has too many digits"),
        ("[" * 100_000, "nested too deeply"),
        ("\ufeff{}", "BOM"),
        ('{"a": -1e400}', 'the number "-1e400" is too large'),
    ],
)
def test_what_is_no_json_is_one_line(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        read_object(text, "the text")
    assert caught.value.code is Code.CONFIG_JSON
    assert str(caught.value).startswith("[AV-CONFIG-JSON] the text is not JSON: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["missing.json", ".", "a\0b", "x" * 5000, "latin.json", "long.json"]
)
def test_a_file_that_cannot_be_read_is_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("latin.json").write_bytes(b'{"a": "\xe9"}')
    Path("long.json").write_bytes(b" " * (1 << 20) + b"{}")
    with pytest.raises(ConfigError) as caught:
        read_file(name)
    assert caught.value.code is Code.CONFIG_FILE
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "bom.json"
    file.write_bytes(b"\xef\xbb\xbf{}")
    assert read_file(str(file)) == {}


def test_a_closed_standard_input_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm_av.config.text.sys.stdin", None)
    with pytest.raises(ConfigError, match="standard input cannot be read: it is closed") as caught:
        read_file("-")
    assert caught.value.code is Code.CONFIG_FILE


def test_a_file_of_the_longest_kind_is_read(tmp_path: Path) -> None:
    file = tmp_path / "long.json"
    file.write_bytes(b" " * ((1 << 20) - 2) + b"{}")
    assert read_file(str(file)) == {}
