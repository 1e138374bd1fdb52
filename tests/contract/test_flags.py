"""The flags of ``vllm serve`` that this package knows are those of the supported vLLMs."""

import json
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.contract.vllm_source import plain_environment, tree_of
from vllm_av.drafters import SUPPORTED
from vllm_av.preflight.flags import parse
from vllm_av.preflight.flags.known import LISTS, OPTIONAL, PLAIN, SHORT, SWITCHES, VALUES
from vllm_av.preflight.flags.values import LOOKED_AT
from vllm_av.preflight.flags.words import givens

_ASK = """
import json
try:
    from vllm.entrypoints.common.cli_args import make_arg_parser
except ImportError:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
found = [
    [action.option_strings, type(action).__name__, action.nargs] for action in parser._actions
]
print("\\n" + json.dumps(found))
"""


@cache
def flags(version: str) -> list[tuple[list[str], str, object]]:
    """Options, kind of action and ``nargs`` of every flag."""
    python = tree_of(version).parents[3] / "bin/python"
    quiet = {"VLLM_PLUGINS": "", "VLLM_LOGGING_LEVEL": "ERROR"}
    done = subprocess.run(
        [python, "-c", _ASK],
        capture_output=True,
        text=True,
        check=True,
        env={**plain_environment(), **quiet},
        timeout=120,
    )
    found: list[tuple[list[str], str, object]] = json.loads(done.stdout.splitlines()[-1])
    return [each for each in found if each[0]]


def longs(options: list[str]) -> list[str]:
    return [option[2:] for option in options if option.startswith("--")]


@pytest.mark.parametrize("version", SUPPORTED)
def test_every_flag_is_known_by_what_follows_it(version: str) -> None:
    for options, kind, nargs in flags(version):
        name = longs(options)[0]
        if kind in ("BooleanOptionalAction", "EnableDisableAction"):
            assert name in SWITCHES
        elif nargs == 0:
            assert name in PLAIN
        elif nargs == "+":
            assert name in LISTS
        else:
            assert name in VALUES
            assert (nargs == "?") == (name in OPTIONAL)


@pytest.mark.parametrize("version", SUPPORTED)
def test_every_spelling_is_read_as_the_same_flag(version: str) -> None:
    for options, _, nargs in flags(version):
        name = longs(options)[0]
        for option in options:
            if option in ("-h", "--help"):
                continue
            words = [option] if nargs == 0 else [option, "1"]
            (found,) = parse_raw(words)
            # Of two long names of a flag that matters, the second would be lost.
            assert found == name or (found in longs(options) and name not in LOOKED_AT), option
            if not option.startswith("--"):
                assert SHORT[option] == name


def parse_raw(words: list[str]) -> list[str]:
    """The names of the flags in ``words``, unread."""
    return [each.name for each in givens(words)]


def test_no_flag_is_known_that_no_supported_vllm_has() -> None:
    theirs = {name for version in SUPPORTED for each in flags(version) for name in longs(each[0])}
    ours = SWITCHES | PLAIN | LISTS | VALUES
    assert ours - {"help"} <= theirs


def test_a_served_command_line_of_the_readme_is_understood() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert "--enforce-eager --max-model-len 1024 --kv-cache-memory-bytes 1073741824" in readme
    line = "TARGET --enforce-eager --max-model-len 1024 --kv-cache-memory-bytes 1073741824"
    found = parse([*line.split(), "--shutdown-timeout", "60"])
    assert found.not_looked_at == ("--kv-cache-memory-bytes", "--shutdown-timeout")
