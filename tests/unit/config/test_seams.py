"""What is connected to vLLM: the wrapped functions, the last line of the program, the note."""

import argparse
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from vllm_av import seams
from vllm_av.errors import Code, ConfigError, ScorerError, VllmAvError
from vllm_av.seams import arguments, command, contract, note
from vllm_av.seams import trace as recording
from vllm_av.seams.contract import Seams

BLOCK = "adaptive_verification_config"
GOOD = {"enable_adaptive_verification": True, BLOCK: {"scorer": "auto"}}
BAD = {"enable_adaptive_verification": True, BLOCK: {"scorre": "auto"}}


@pytest.fixture
def args(monkeypatch: pytest.MonkeyPatch) -> Any:
    """vLLM's module of the engine's arguments, as far as it is wrapped."""

    class EngineArgs:
        def __init__(self, speculative_config: Any, spec_tokens: int | None = None) -> None:
            self.speculative_config = speculative_config
            self.spec_tokens = spec_tokens

        def create_speculative_config(self, target: str, parallel: str) -> Any:
            """Upstream's."""
            return (self.speculative_config, target, parallel)

        @staticmethod
        def add_cli_args(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
            import json

            parser.add_argument("--speculative-config", "-sc", type=json.loads)
            return parser

    module = ModuleType("vllm.engine.arg_utils")
    module.EngineArgs = EngineArgs  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm.engine.arg_utils", module)
    return EngineArgs


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A process that made no offer; the folder of its temporary files."""
    monkeypatch.setattr(note, "_offer", None)
    monkeypatch.setenv(note._VARIABLE, "")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path


@contextmanager
def another_process() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)
        yield


def make(kind: Any, spec: Any, **more: Any) -> Any:
    return kind(spec, **more).create_speculative_config("target", parallel="parallel")


@pytest.mark.parametrize("state", Seams)
@pytest.mark.parametrize(
    "spec", [None, {}, {"method": "ngram"}, {"enable_adaptive_verification": True}, {1: 2}, "text"]
)
def test_a_config_without_a_block_passes_untouched(args: Any, state: Seams, spec: Any) -> None:
    arguments.connect(state)
    made, *others = make(args, spec)
    assert made is spec
    assert others == ["target", "parallel"]
    assert args.create_speculative_config.__doc__ == "Upstream's."


def test_a_block_is_checked_before_vllm_sees_it(args: Any) -> None:
    arguments.connect(Seams.ALL)
    assert make(args, GOOD)[0] is GOOD
    with pytest.raises(ConfigError) as caught:
        make(args, BAD)
    assert caught.value.code is Code.CONFIG_KEY


def test_the_flag_of_the_command_line_counts_the_drafts(args: Any) -> None:
    arguments.connect(Seams.ALL)
    spec = {**GOOD, BLOCK: {"estimator": {"initial_intercepts": [0, 0]}}}
    make(args, spec, spec_tokens=2)
    with pytest.raises(ConfigError, match=r"has 2 numbers; .* or 3, which"):
        make(args, spec, spec_tokens=3)


@pytest.mark.parametrize(("state", "words"), [("none", "not patched"), ("some", "in part")])
@pytest.mark.parametrize("key", [BLOCK, BLOCK.replace("_", "-")])
def test_a_block_for_an_unpatched_vllm_is_refused(
    args: Any, key: str, state: str, words: str
) -> None:
    arguments.connect(Seams(state))
    with pytest.raises(ConfigError, match=f"{words}.*run `vllm-av patch apply`") as caught:
        make(args, {"enable_adaptive_verification": True, key: {}})
    assert caught.value.code is Code.CONFIG_UNPATCHED


def test_connecting_again_wraps_nothing_twice(args: Any) -> None:
    arguments.connect(Seams.ALL)
    once = (args.create_speculative_config, args.add_cli_args)
    arguments.connect(Seams.ALL)
    assert (args.create_speculative_config, args.add_cli_args) == once


def test_a_process_without_the_engine_s_arguments_needs_no_wrapping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "vllm.engine.arg_utils", raising=False)
    arguments.connect(Seams.ALL)
    assert "vllm.engine.arg_utils" not in sys.modules


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"enable_adaptive_verification": true,', "AV-CONFIG-JSON"),
        ('{"adaptive-verification-config": {"scorer": NaN}}', "NaN is no JSON number"),
        ('{"adaptive_verification_config": {"a": 1, "a": 2}}', 'the key "a" is given twice'),
        ('"{adaptive_verification_config: 1}"', "[AV-CONFIG-OBJECT] the config is "),
    ],
)
def test_broken_json_is_told_by_the_command_line(
    args: Any, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments.connect(Seams.ALL)
    parser = args.add_cli_args(argparse.ArgumentParser("vllm serve"))
    with pytest.raises(SystemExit) as left:
        parser.parse_args(["-sc", text])
    assert left.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "error: argument --speculative-config/-sc: [AV-CONFIG-" in last
    assert words in last


def test_a_second_text_does_not_replace_a_block(
    args: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """As vLLM makes one of ``--speculative-config.model D`` beside JSON."""
    arguments.connect(Seams.ALL)
    parser = args.add_cli_args(argparse.ArgumentParser())
    block = '{"adaptive_verification_config": {}}'
    assert parser.parse_args(["-sc", block, "-sc", block]).speculative_config
    assert parser.parse_args(["-sc", '{"a": 1}', "-sc", block]).speculative_config
    with pytest.raises(SystemExit):
        parser.parse_args(["-sc", block, "-sc", '{"model": "D"}'])
    assert "[AV-CONFIG-JSON] --speculative-config is given twice" in capsys.readouterr().err


@pytest.mark.parametrize("text", ['{"method": "a", "method": "b"}', '{"x": NaN}', "5"])
def test_a_text_that_is_not_about_us_is_read_as_ever(args: Any, text: str) -> None:
    arguments.connect(Seams.ALL)
    parser = args.add_cli_args(argparse.ArgumentParser())
    import json

    assert str(parser.parse_args(["-sc", text]).speculative_config) == str(json.loads(text))
    with pytest.raises(SystemExit):
        parser.parse_args(["-sc", "{"])


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ([], Seams.NONE),
        (["config/adaptive_verification.py"], Seams.SOME),
        # A file that lacks its reader, as where only the interface was taken over.
        ([*contract._NEEDED][:-1], Seams.SOME),
        ([*contract._NEEDED], Seams.ALL),
    ],
)
def test_the_seams_are_found_by_what_reads_them(
    files: list[str], state: Seams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in contract._NEEDED.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"# vLLM\n" + (text if name in files else b""))
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(contract, "find_spec", lambda name: spec)
    assert contract.found() is state


def test_without_vllm_there_are_no_seams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "find_spec", lambda name: None)
    assert contract.found() is Seams.NONE


@pytest.mark.parametrize("taken", ["scorer", "budget", "config"])
def test_what_cannot_be_connected_is_logged_and_stops_nothing(
    taken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another plugin sits at one of the seams; then the others stay free too."""

    def fail() -> None:
        raise ValueError("taken")

    connected: list[str] = []
    monkeypatch.setattr(contract, "found", lambda: Seams.ALL)
    for name, seam in (("scorer", seams.scorer), ("budget", seams.budget)):
        monkeypatch.setattr(seam, "require_free", fail if taken == name else lambda: None)
        monkeypatch.setattr(seam, "connect", lambda: connected.append("more"))
    monkeypatch.setattr(
        seams.config, "connect", fail if taken == "config" else lambda: connected.append("config")
    )
    seams.connect()
    assert connected == []
    assert "cannot be connected" in caplog.text
    assert "taken" in caplog.text


def test_all_or_nothing_is_connected(args: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connected: list[str] = []
    for name, seam in (("scorer", seams.scorer), ("budget", seams.budget)):
        monkeypatch.setattr(seam, "require_free", lambda: None)
        monkeypatch.setattr(seam, "connect", lambda name=name: connected.append(name))
    monkeypatch.setattr(seams.config, "connect", lambda: connected.append("config"))
    monkeypatch.setattr(contract, "found", lambda: Seams.SOME)
    seams.connect()
    assert connected == []
    monkeypatch.setattr(contract, "found", lambda: Seams.ALL)
    seams.connect()
    assert connected == ["config", "scorer", "budget"]


@pytest.mark.parametrize(
    ("spec", "argv", "answer"),
    [
        (None, ["/venv/bin/vllm", "serve"], True),
        (None, ["/home/me/serve.py"], False),
        (None, ["/home/me/vllm.py"], False),
        (None, [""], False),
        ("vllm.entrypoints.cli.main", ["/x/main.py"], True),
        ("vllm.entrypoints.openai.api_server", ["/x/api_server.py"], True),
        ("pytest", ["/x/vllm"], False),
        ("vllm_av.__main__", ["/x/__main__.py"], False),
    ],
)
def test_the_program_is_known_by_its_name(
    spec: str | None, argv: list[str], answer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = ModuleType("__main__")
    main.__spec__ = importlib.util.spec_from_loader(spec, None) if spec else None
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "argv", argv)
    assert command.in_program() is answer


class TestLastLine:
    @pytest.fixture(autouse=True)
    def before(self, notes: Path, monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
        told: list[BaseException] = []
        monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: told.append(error))
        monkeypatch.setattr(command, "in_program", lambda: True)
        command.connect()
        once = sys.excepthook
        command.connect()
        assert sys.excepthook is once
        return told

    def test_an_error_of_this_package_is_one_line(
        self, before: list[BaseException], capsys: pytest.CaptureFixture[str]
    ) -> None:
        error = ConfigError(Code.CONFIG_KEY, "given", "allowed", "fix")
        sys.excepthook(type(error), error, None)
        assert capsys.readouterr().err == "error: [AV-CONFIG-KEY] given; allowed; fix\n"
        assert before == []

    def test_another_error_is_told_as_ever(
        self, before: list[BaseException], capsys: pytest.CaptureFixture[str]
    ) -> None:
        error = ValueError("x")
        sys.excepthook(ValueError, error, None)
        assert capsys.readouterr().err == ""
        assert before == [error]

    def test_a_note_of_another_process_is_the_last_line(
        self, before: list[BaseException], capsys: pytest.CaptureFixture[str]
    ) -> None:
        note.offer()
        first = ConfigError(Code.CONFIG_KEY, "first", "allowed", "fix")
        for error in (first, ConfigError(Code.CONFIG_TYPE, "second", "allowed", "fix")):
            with another_process(), pytest.raises(ConfigError), note.left_by_errors():
                raise error
        sys.excepthook(RuntimeError, RuntimeError("Engine core initialization failed"), None)
        assert len(before) == 1
        assert capsys.readouterr().err == f"error: {first}\n"
        assert note.take() is None

    def test_a_note_is_gone_after_an_error_of_this_package(self, notes: Path) -> None:
        note.offer()
        error = ConfigError(Code.CONFIG_KEY, "given", "allowed", "fix")
        with another_process():
            note.leave(error)
        assert len(list(notes.iterdir())) == 1
        sys.excepthook(type(error), error, None)
        assert list(notes.iterdir()) == []

    @pytest.mark.parametrize("code", [Code.SCORER_FAILED, Code.SCORER_BROKEN])
    def test_a_scorer_s_fault_is_told_with_its_traceback(
        self, code: Code, capsys: pytest.CaptureFixture[str]
    ) -> None:
        error = ScorerError(code, "given", "allowed", "fix")
        try:
            {}["table"]
        except KeyError as cause:
            error.__cause__ = cause
        sys.excepthook(ScorerError, error, None)
        first, *_, fault, last = capsys.readouterr().err.splitlines()
        assert first == "Traceback (most recent call last):"
        assert (fault, last) == ("KeyError: 'table'", f"error: {error}")

    def test_standard_error_may_be_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        error = ConfigError(Code.CONFIG_KEY, "given", "allowed", "fix")
        monkeypatch.setattr(sys, "stderr", None)
        sys.excepthook(type(error), error, None)


def test_nothing_is_hooked_in_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = sys.excepthook
    monkeypatch.setattr(command, "in_program", lambda: False)
    command.connect()
    assert sys.excepthook is hook


def test_without_an_offer_no_note_is_left(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(notes)
    with pytest.raises(VllmAvError), note.left_by_errors():
        raise ConfigError(Code.CONFIG_KEY, "given", "allowed", "fix")
    assert list(notes.iterdir()) == []
    assert note.take() is None


def test_a_stranger_s_file_is_no_note(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    precious = notes / "precious.txt"
    precious.write_text("precious")
    monkeypatch.setenv(note._VARIABLE, str(precious))
    assert note.take() is None
    note.offer()
    name = Path(os.environ[note._VARIABLE])
    assert name != precious
    name.symlink_to(precious)
    assert note.take() is None
    assert precious.read_text() == "precious"


def test_the_process_that_offers_leaves_no_note_itself(notes: Path) -> None:
    note.offer()
    name = os.environ[note._VARIABLE]
    note.offer()
    assert os.environ[note._VARIABLE] == name
    note.leave(ConfigError(Code.CONFIG_KEY, "given", "allowed", "fix"))
    assert list(notes.iterdir()) == []


def test_a_forked_process_s_offer_is_its_own(notes: Path) -> None:
    note.offer()
    name = os.environ[note._VARIABLE]
    with another_process():
        assert note.take() is None
        note.offer()
        assert os.environ[note._VARIABLE] != name


class _Log:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def info_once(self, text: str, *values: object) -> None:
        self.lines.append(("info", text % values))

    def warning_once(self, text: str, *values: object) -> None:
        self.lines.append(("warning", text % values))


class TestFactory:
    @pytest.fixture
    def log(self, notes: Path, monkeypatch: pytest.MonkeyPatch) -> _Log:
        log = _Log()
        module = ModuleType("vllm.logger")
        module.init_logger = lambda name: log  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "vllm.logger", module)
        return log

    @staticmethod
    def create(block: dict[str, Any]) -> Any:
        hf_config = SimpleNamespace(model_type="qwen3")
        spec = SimpleNamespace(
            adaptive_verification_config=block,
            num_speculative_tokens=3,
            method="dspark",
            parallel_drafting=True,
            draft_model_config=SimpleNamespace(
                architectures=["Qwen3DSparkModel"], hf_config=hf_config
            ),
        )
        inputs = SimpleNamespace(
            vllm_config=SimpleNamespace(speculative_config=spec),
            num_speculative_steps=3,
            max_num_reqs=4,
            device=None,
            has_draft_logits=True,
            compute_confidence=lambda *_: 1 / 0,
        )
        return seams.scorer.create(inputs)

    def test_a_failure_after_the_choice_leaves_its_note(self, log: _Log) -> None:
        note.offer()
        with another_process():
            scorer = self.create({})
            with pytest.raises(ScorerError) as caught:
                scorer.predict_block(None, None, None)
        assert caught.value.code is Code.SCORER_FAILED
        assert note.take() == str(caught.value)

    def test_the_settings_in_force_are_logged(self, log: _Log) -> None:
        self.create({})
        self.create({"scorer": "online_estimator", "estimator": {"damping": 5}})
        (_, auto), (_, named) = log.lines
        head = "drafter DSpark with its head, scorer confidence_head (the drafter's checkpoint"
        assert auto.startswith(f"Adaptive verification: {head}")
        assert json.loads(auto.partition("settings ")[2]) == {
            "scorer": "confidence_head",
            "allow_lossy": False,
            "on_unsupported": "error",
            "exploration": 0.01,
            "budget": {"min_predicted_gain": 0.02, "min_requests": 1, "cost_scale": 1.0},
        }
        assert json.loads(named.partition("settings ")[2])["estimator"]["damping"] == 5

    def test_numbers_that_auto_ignores_are_warned_of(self, log: _Log) -> None:
        self.create({"estimator": {"damping": 5}})
        assert [kind for kind, _ in log.lines] == ["info", "warning"]
        assert "estimator are ignored: auto chose confidence_head" in log.lines[1][1]


def test_a_note_that_cannot_be_left_hides_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(note._VARIABLE, str(tmp_path / "missing" / "note"))
    with pytest.raises(ConfigError), note.left_by_errors():
        raise ConfigError(Code.CONFIG_KEY, "given", "allowed", "fix")
    assert note.take() is None


def test_a_cpu_without_kernels_does_not_stop_vllm(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import vllm_av.cpu
    from vllm_av import plugin

    def fail() -> None:
        raise ImportError("no Triton here")

    connected: list[str] = []
    monkeypatch.setattr(plugin, "vllm_is_cpu", lambda: True)
    monkeypatch.setattr(vllm_av.cpu, "install", fail)
    monkeypatch.setattr(plugin, "connect", lambda: connected.append("seams"))
    plugin.register()
    assert connected == ["seams"]
    assert "no Triton here" in caplog.text


def test_the_folder_of_a_trace_may_be_in_the_users_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    alone, two = (SimpleNamespace(data_parallel_size=n, data_parallel_rank=n - 1) for n in (1, 2))
    assert recording._folder("~/t", alone) == tmp_path / "t"
    assert recording._folder("~/t", two) == tmp_path / "t" / "engine-1"
    assert recording._folder("~nobody-of-that-name/t", alone) == Path("~nobody-of-that-name/t")
