"""Options are checked at the edge; the engine and the printed line come from one description."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_av.demo.settings import (
    ENVIRONMENT,
    Arm,
    Pair,
    Settings,
    ask_text,
    engine_arguments,
    num_prompts,
    serve_command,
    serve_text,
)
from vllm_av.errors import Code, DemoError

_PAIR = Pair(Path("/models/a folder/smollm2"), Path("/models/a folder/head"))


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("drafter", "medusa"),
        ("concurrency", (0,)),
        ("concurrency", (33,)),
        ("concurrency", (8, 8)),
        ("concurrency", ()),
        ("num_speculative_tokens", 0),
        ("num_speculative_tokens", 9),
        ("temperature", 0.009),
        ("temperature", -1.0),
        ("temperature", float("nan")),
        ("max_tokens", 7),
        ("max_tokens", 257),
    ],
)
def test_out_of_range_names_the_option(option: str, wrong: Any) -> None:
    with pytest.raises(DemoError) as caught:
        Settings(**{option: wrong})
    assert caught.value.code is Code.DEMO_OPTION
    assert f"--{option.replace('_', '-')} " in caught.value.given


@pytest.mark.parametrize("drafter", ["dflash", "dspark", "dspark-headless"])
def test_a_block_is_as_long_as_it_was_trained(drafter: str) -> None:
    assert Settings(drafter, num_speculative_tokens=7).num_speculative_tokens == 7
    with pytest.raises(DemoError, match=f"1 to 7 with --drafter {drafter};") as caught:
        Settings(drafter, num_speculative_tokens=8)
    assert caught.value.code is Code.DEMO_OPTION
    assert caught.value.given == "--num-speculative-tokens 8"


@pytest.mark.parametrize("temperature", [0.0, 0.01, 2.0])
def test_the_bounds_are_allowed(temperature: float) -> None:
    assert Settings("mtp", (1, 32), 8, temperature, 256).temperature == temperature


def test_the_arms_differ_in_the_speculative_config_alone() -> None:
    arguments = [engine_arguments(arm, Settings(), _PAIR) for arm in Arm]
    speculative = [each.pop("speculative_config", None) for each in arguments]
    assert arguments[0] == arguments[1] == arguments[2]
    assert speculative[0] is None
    assert speculative[2] == {**speculative[1], "enable_adaptive_verification": True}
    assert speculative[1]["draft_sample_method"] == "probabilistic"


def test_the_engine_has_room_for_what_is_sent() -> None:
    arguments = engine_arguments(Arm.ADAPTIVE, Settings(concurrency=(1, 8)), _PAIR)
    assert arguments["max_num_seqs"] == 8
    assert num_prompts(8) == 24


def test_the_printed_line_survives_a_shell() -> None:
    settings = Settings(num_speculative_tokens=3)
    text = serve_text(Arm.ADAPTIVE, settings, _PAIR)
    # What a shell makes of it: continued lines are one.
    words = shlex.split(text.replace("\\\n", ""))
    command = serve_command(Arm.ADAPTIVE, settings, _PAIR)
    assert words == [f"{name}={value}" for name, value in ENVIRONMENT.items()] + command
    assert command[0] == str(Path(sys.executable).with_name("vllm"))
    assert command[1:3] == ["serve", str(_PAIR.target)]
    assert "--enforce-eager" in command
    assert "--no-enable-prefix-caching" in command
    config = json.loads(command[command.index("--speculative-config") + 1])
    assert config == engine_arguments(Arm.ADAPTIVE, settings, _PAIR)["speculative_config"]


def test_the_printed_request_names_the_served_model() -> None:
    command = serve_command(Arm.ADAPTIVE, Settings(), _PAIR)
    body = json.loads(shlex.split(ask_text())[-1])
    assert body["model"] == command[command.index("--served-model-name") + 1]


def test_a_drafter_inside_its_target_is_not_named_again() -> None:
    settings = Settings("mtp")
    config = engine_arguments(Arm.FIXED, settings, Pair(Path("/own"), None))["speculative_config"]
    assert config["method"] == "mtp"
    assert "model" not in config
