"""The target's layers are asked once they are built, before a weight is read: in the process of
the engine, in that of a server, and on every rank."""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from tests.engine import models
from tests.engine.checking import (
    FIXED,
    LOGGER,
    PROMPTS,
    arguments,
    codes,
    config,
    started,
    with_experts,
)
from tests.engine.harness import ENVIRONMENT, greedy_tokens, in_processes, logged_by
from tests.packages import expose, python_path
from vllm_av.errors import RefusedError

NARROW = Path(__file__).with_name("narrow_backend")
VARIABLE = "NARROW_BACKEND"
BLOCK = {"adaptive_verification_config": FIXED}


@pytest.fixture
def narrow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The CPU's backend cannot do adaptive verification; ``always``, or once it is ``built``."""
    from vllm.v1.attention import selector
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    monkeypatch.setenv(VARIABLE, request.param)
    monkeypatch.syspath_prepend(str(NARROW))
    selector._cached_get_attn_backend.cache_clear()
    importlib.import_module("narrow_backend").register()
    yield
    AttentionBackendEnum.CPU_ATTN.clear_override()
    selector._cached_get_attn_backend.cache_clear()


@pytest.mark.parametrize("narrow", ["always"], indirect=True)
@pytest.mark.usefixtures("narrow")
def test_a_backend_that_cannot_is_refused_when_the_config_is_made(
    weightless: tuple[str, str],
) -> None:
    with pytest.raises(RefusedError) as caught:
        config(weightless, enable_lora=True)
    assert codes(caught.value) == {"AV-CHECK-LENS", "AV-CHECK-LORA"}
    found = config(weightless, BLOCK)
    assert not found.speculative_config.enable_adaptive_verification


@pytest.mark.parametrize("narrow", ["built"], indirect=True)
@pytest.mark.usefixtures("narrow")
def test_a_backend_that_shows_in_the_layers_alone_is_refused_before_their_weights(
    weightless: tuple[str, str],
) -> None:
    with pytest.raises(RefusedError) as caught:
        started(weightless, {})
    assert codes(caught.value) == {"AV-CHECK-LENS"}
    (reason,) = caught.value.reasons
    assert "NarrowBackend attention backend does not support" in reason
    assert "Layers: 1, the first is model.layers.0.self_attn.attn" in reason


@pytest.mark.parametrize("narrow", ["built"], indirect=True)
@pytest.mark.usefixtures("narrow", "alone")
def test_vllm_alone_refuses_the_layers_too(weightless: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=r"\(1\) .* NarrowBackend .* does not support\. Layers: 1"):
        started(weightless, {})


@pytest.mark.parametrize("narrow", ["built"], indirect=True)
@pytest.mark.usefixtures("narrow")
def test_a_fixed_k_builds_the_target_again_without_adaptive_verification(
    random_pair: tuple[str, str],
) -> None:
    from vllm.model_executor.models.llama import LlamaForCausalLM

    with (
        logged_by(LOGGER) as records,
        mock.patch.object(
            LlamaForCausalLM, "__init__", autospec=True, side_effect=LlamaForCausalLM.__init__
        ) as built,
    ):
        engine = started(random_pair, BLOCK)
    assert built.call_count == 3  # the target, the target again, the drafter
    (warning,) = [record for record in records if record.levelname == "WARNING"]
    assert "AV-CHECK-LENS" in warning.getMessage()
    assert not engine.adaptive
    assert engine.scorer is None
    layers = engine.runner.vllm_config.compilation_config.static_forward_context
    assert [name.startswith("draft") for name in layers] == [False, True]
    target = dict(engine.runner.model.named_modules())
    assert layers["model.layers.0.self_attn.attn"] is target["model.layers.0.self_attn.attn"]
    asked = started(random_pair, {"enable_adaptive_verification": False})
    hashes = {each.runner.vllm_config.compute_hash() for each in (engine, asked)}
    assert len(hashes) == 1
    assert engine.greedy(PROMPTS, batch=8) == asked.greedy(PROMPTS, batch=8)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of processes that have the backend as a plugin."""
    path = python_path(expose(NARROW, tmp_path / "dist"))
    for entry in path.split(os.pathsep):
        monkeypatch.syspath_prepend(entry)
    return {VARIABLE: "built", "PYTHONPATH": path}


def test_every_rank_switches_it_off(
    random_pair: tuple[str, str],
    installed: dict[str, str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Each rank has a config of its own, and decides when it has built its layers."""
    whole = arguments(random_pair, BLOCK, tensor_parallel_size=2)
    with (
        mock.patch.dict(os.environ, installed),
        in_processes(whole.pop("model"), whole.pop("speculative_config"), **whole) as llm,
    ):
        tokens = greedy_tokens(llm, PROMPTS)
    assert tokens == [models.greedy(random_pair[0], prompt) for prompt in PROMPTS]
    printed = "".join(capfd.readouterr())
    assert printed.count("Adaptive verification is off, and") == 1
    assert "AV-CHECK-LENS" in printed


WATCHED = """
import functools, weakref
from vllm import LLM
from vllm.model_executor.models.mixtral import MixtralForCausalLM

init, built = MixtralForCausalLM.__init__, []

@functools.wraps(init)
def watched(self, *args, **kwargs):
    print("held:", sum(model() is not None for model in built))
    built.append(weakref.ref(self))
    init(self, *args, **kwargs)

MixtralForCausalLM.__init__ = watched
"""


def test_the_target_that_is_built_again_is_not_held_beside_the_new_one(
    weightless: tuple[str, str], installed: dict[str, str], tmp_path: Path
) -> None:
    """With experts, whose layers vLLM keeps in two more places; the weights are missed after it."""
    pair = with_experts(weightless[0], tmp_path), weightless[1]
    end = subprocess.run(
        [sys.executable, "-c", f"{WATCHED}LLM(**{arguments(pair, BLOCK)!r})"],
        env={**os.environ, **ENVIRONMENT, **installed},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    held = [line for line in end.stdout.splitlines() if line.startswith("held:")]
    assert held == ["held: 0", "held: 0"]
    assert "Cannot find any model weights" in end.stderr


def test_a_server_tells_every_reason_of_its_engine(
    weightless: tuple[str, str], installed: dict[str, str]
) -> None:
    from tests.engine.test_config import serve, text_of

    environment = {**os.environ, **ENVIRONMENT, **installed}
    environment.pop("VLLM_ENABLE_V1_MULTIPROCESSING")
    end = subprocess.run(
        serve(weightless, text_of(weightless, {})),
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert end.returncode == 1
    told, reason = end.stderr.rstrip().splitlines()[-2:]
    assert told.startswith("error: [AV-CHECK-REFUSED] adaptive verification cannot run here, ")
    assert reason.startswith("  refusal: [AV-CHECK-LENS] the target's attention layers")


def test_a_server_refuses_a_config_in_one_line_for_each_reason(
    weightless: tuple[str, str],
) -> None:
    from tests.engine.test_config import serve, text_of

    end = subprocess.run(
        [*serve(weightless, text_of(weightless, {})), "--enable-lora", "-pp", "2"],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert end.returncode == 1
    told, lora, pipeline = end.stderr.rstrip().splitlines()[-3:]
    assert told.startswith("error: [AV-CHECK-REFUSED] ")
    assert "[AV-CHECK-LORA]" in lora
    assert "[AV-CHECK-PIPELINE]" in pipeline
    assert "Traceback" not in end.stderr + end.stdout
