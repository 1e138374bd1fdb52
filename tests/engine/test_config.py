"""``adaptive_verification_config`` in vLLM itself: in force as written, or refused in one line
before any weight is read."""

import copy
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest

from tests.engine.harness import ENVIRONMENT, engine_arguments, speculation
from tests.packages import EXAMPLES, expose, python_path
from vllm_av.errors import Code, ConfigError
from vllm_av.estimator.settings import MIXED

BLOCK = "adaptive_verification_config"
WRITTEN = {
    "scorer": "auto",
    "estimator": {
        "refit_interval": 50,
        "damping": 25,
        "initial_slope": 0.6,
        "initial_intercepts": [0.1, 0, -0.1, -0.2],
    },
}
IN_FORCE = {
    "scorer": "auto",
    "allow_lossy": False,
    "on_unsupported": "error",
    "exploration": 0.01,
    "estimator": {
        "refit_interval": 50,
        "damping": 25.0,
        "memory": MIXED.memory,
        "initial_slope": 0.6,
        "initial_intercepts": [0.1, 0.0, -0.1, -0.2],
        "log_odds_clamp": 40.0,
    },
    "budget": {"min_predicted_gain": 0.02, "min_requests": 1, "cost_scale": 1.0},
}


def spec_config(pair: tuple[str, str], block: Any, **changes: Any) -> Any:
    """vLLM's own ``SpeculativeConfig``, made of an engine's arguments."""
    from vllm import EngineArgs

    spec = speculation(pair[1], "draft_model", True, steps=4, block=block) | changes
    arguments = engine_arguments(pair[0], spec, max_model_len=48, skip_tokenizer_init=True)
    return EngineArgs(**arguments).create_engine_config().speculative_config


@pytest.mark.parametrize("key", [BLOCK, BLOCK.replace("_", "-")])
def test_a_block_is_filled_in_and_stays_plain_json(random_pair: tuple[str, str], key: str) -> None:
    from vllm.config.adaptive_verification import validate_adaptive_verification_config

    config = spec_config(random_pair, None, **{key: WRITTEN})
    assert config.adaptive_verification_config == IN_FORCE
    assert json.loads(json.dumps(config.adaptive_verification_config)) == IN_FORCE
    # As in a worker, which gets it pickled.
    config = pickle.loads(pickle.dumps(config))
    validate_adaptive_verification_config(config)
    assert config.adaptive_verification_config == IN_FORCE


@pytest.mark.parametrize("scorer", ["max_probability", "online_estimator"])
def test_a_filled_in_block_is_accepted_again(random_pair: tuple[str, str], scorer: str) -> None:
    block = spec_config(random_pair, {"scorer": scorer}).adaptive_verification_config
    assert spec_config(random_pair, block).adaptive_verification_config == block


def test_flag_and_block_count_in_the_compile_hash_of_every_method(
    random_pair: tuple[str, str],
) -> None:
    from vllm.config.speculative import SpeculativeMethod

    written = spec_config(random_pair, WRITTEN)
    methods = get_args(SpeculativeMethod)
    assert {"eagle3", "mtp", "dflash", "dspark", "draft_model"} <= set(methods)
    for method in methods:
        config = copy.copy(written)
        config.method = method
        hashes = {config.compute_hash()}
        other = copy.deepcopy(IN_FORCE)
        other["estimator"]["damping"] = 26.0
        for block in (other, None):
            config.adaptive_verification_config = block
            hashes.add(config.compute_hash())
        config.enable_adaptive_verification = False
        hashes.add(config.compute_hash())
        assert len(hashes) == 4, method


def estimator(**settings: Any) -> dict[str, Any]:
    return {"estimator": settings}


@pytest.mark.parametrize(
    ("code", "block", "changes"),
    [
        (Code.CONFIG_KEY, {"scorre": "auto"}, {}),
        (Code.CONFIG_KEY, estimator(refit_intervall=5), {}),
        (Code.CONFIG_TYPE, estimator(damping="50"), {}),
        (Code.CONFIG_RANGE, estimator(refit_interval=0), {}),
        (Code.CONFIG_RANGE, estimator(initial_slope=float("nan")), {}),
        (Code.CONFIG_RANGE, estimator(damping=10**400), {}),
        (Code.CONFIG_COUNT, estimator(initial_intercepts=[0.1, 0.2]), {}),
        (Code.CONFIG_SCORER, {"scorer": "nobody"}, {}),
        (Code.CONFIG_OBJECT, [{"scorer": "auto"}], {}),
        (Code.CONFIG_OBJECT, "auto", {}),
        (Code.CONFIG_UNUSED, {"scorer": "max_probability", **estimator(damping=1)}, {}),
        (Code.CONFIG_OFF, {}, {"enable_adaptive_verification": False}),
    ],
)
def test_a_bad_block_stops_the_engine_s_start(
    random_pair: tuple[str, str], code: Code, block: Any, changes: dict[str, Any]
) -> None:
    from vllm import LLM

    spec = speculation(random_pair[1], "draft_model", True, steps=4, block=block) | changes
    arguments = engine_arguments(random_pair[0], spec, max_model_len=48, skip_tokenizer_init=True)
    with pytest.raises(ConfigError) as caught:
        LLM(**arguments)
    assert caught.value.code is code
    assert BLOCK in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"adaptive_verification_config": {"scorer": "auto"}', "Expecting ',' delimiter"),
        ('{"adaptive_verification_config": {"estimator": {"damping": NaN}}}', "NaN is no JSON"),
    ],
)
def test_the_server_s_command_line_tells_broken_json(
    text: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from vllm.entrypoints.cli.serve import cmd_init
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser(prog="vllm")
    cmd_init()[0].subparser_init(parser.add_subparsers())
    with pytest.raises(SystemExit) as left:
        parser.parse_args(["serve", "TARGET", "--speculative-config", text])
    assert left.value.code == 2
    assert (
        f"--speculative-config/-sc: [AV-CONFIG-JSON] this text is not JSON: {reason}"
        in capsys.readouterr().err.splitlines()[-1]
    )


class End(NamedTuple):
    """How a program ended."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        return self.err.rstrip().splitlines()[-1]


@pytest.fixture(scope="module")
def ends(
    random_pair: tuple[str, str],
    headless: tuple[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, End]]:
    """Programs that must not get far, each in an environment of its own, all at once."""
    folder = tmp_path_factory.mktemp("ends")
    scorers = python_path(expose(EXAMPLES / "faulty_scorers", folder))
    good = text_of(random_pair, WRITTEN)
    head = text_of(headless, {"scorer": "confidence_head"}, method="dspark")
    # Whether a state can be kept is known once the drafter is loaded, in the engine's process.
    state = text_of(random_pair, {"state_file": str(folder / "nowhere" / "state")})
    programs = {
        "bad block": (serve(random_pair, text_of(random_pair, {"scorre": 1})), {}),
        "lossy": (
            serve(random_pair, text_of(random_pair, {"scorer": "looks"})),
            {"PYTHONPATH": scorers},
        ),
        "no head": (serve(headless, head), {}),
        "no state": (serve(random_pair, state), {}),
        "no plugin": (llm(random_pair, good), {"VLLM_PLUGINS": ""}),
        "unpatched": (
            llm(random_pair, good),
            {"PYTHONPATH": python_path([str(unpatched(folder / "site"))])},
        ),
    }
    # The folder's conftest keeps engines in the tests' process; here the default counts.
    environment = {**os.environ, **ENVIRONMENT}
    environment.pop("VLLM_ENABLE_V1_MULTIPROCESSING")
    running = {
        name: subprocess.Popen(
            command,
            env=environment | changes,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            start_new_session=True,
        )
        for name, (command, changes) in programs.items()
    }
    try:
        found = {}
        for name, process in running.items():
            out, err = process.communicate(timeout=240)
            found[name] = End(process.returncode, out, err)
        yield found
    finally:
        for process in running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


def text_of(pair: tuple[str, str], block: Any, method: str = "draft_model") -> str:
    return json.dumps(speculation(pair[1], method, True, steps=3, block=block))


def serve(pair: tuple[str, str], spec: str) -> list[str]:
    """The command line of a server."""
    options = ["--enforce-eager", "--max-model-len", "48", "--skip-tokenizer-init"]
    options += ["--dtype", "float32", "--kv-cache-memory-bytes", str(64 << 20)]
    program = str(Path(sys.executable).with_name("vllm"))
    return [program, "serve", pair[0], *options, "--port", "0", "--speculative-config", spec]


def llm(pair: tuple[str, str], spec: str) -> list[str]:
    """A user's own program."""
    arguments = engine_arguments(
        pair[0], json.loads(spec), max_model_len=48, skip_tokenizer_init=True
    )
    return [sys.executable, "-c", f"from vllm import LLM; LLM(**{arguments!r})"]


def unpatched(site: Path) -> Path:
    """A copy of the installed vLLM with its patches reverted, as links where that can be."""
    import vllm

    installed = Path(vllm.__file__).parents[1]
    names = [
        "vllm",
        *(path.name for path in installed.glob("vllm*-*") if "vllm_av-" not in str(path)),
    ]
    for name in names:
        try:
            shutil.copytree(installed / name, site / name, copy_function=os.link)
        except (shutil.Error, OSError):  # the temporary folder is on another disk
            shutil.copytree(installed / name, site / name, dirs_exist_ok=True)
    command = [sys.executable, "-m", "vllm_av", "patch", "revert", "--site", str(site)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert not (site / "vllm/config/adaptive_verification.py").exists()
    return site


def test_the_server_ends_in_one_line(ends: dict[str, End]) -> None:
    end = ends["bad block"]
    assert end.code == 1
    assert end.last_line.startswith(f"error: [AV-CONFIG-KEY] {BLOCK} has the unknown key")
    assert "Traceback" not in end.err + end.out


def test_a_lossy_scorer_is_refused_before_anything_is_loaded(ends: dict[str, End]) -> None:
    end = ends["lossy"]
    assert end.code == 1
    assert end.last_line.startswith("error: [AV-SCORER-LOSSY] the scorer 'looks' ")
    assert "Traceback" not in end.err + end.out


def test_the_server_names_what_stopped_its_engine(ends: dict[str, End]) -> None:
    end = ends["no state"]
    assert end.code == 1
    assert end.last_line.startswith("error: [AV-STATE-WRITE] ")
    # And so does the log of the process that it stopped.
    assert "vllm_av.errors.StateError: [AV-STATE-WRITE]" in end.err + end.out


def test_a_head_that_is_not_there_is_missed_before_anything_is_loaded(
    ends: dict[str, End],
) -> None:
    end = ends["no head"]
    assert end.code == 1
    assert end.last_line.startswith("  refusal: [AV-CHECK-SCORER] the scorer confidence_head ")
    assert "Traceback" not in end.err + end.out


def test_a_block_that_nobody_would_read_is_refused(ends: dict[str, End]) -> None:
    end = ends["no plugin"]
    assert end.code == 1
    assert end.last_line.startswith(f"RuntimeError: {BLOCK} is set, but no plugin that reads it")
    assert "VLLM_PLUGINS" in end.last_line


def test_an_unpatched_vllm_says_what_to_run(ends: dict[str, End]) -> None:
    end = ends["unpatched"]
    assert end.code == 1
    assert end.last_line.startswith("vllm_av.errors.ConfigError: [AV-CONFIG-UNPATCHED] ")
    assert "run `vllm-av patch apply`" in end.last_line
