"""The command itself: which verb is loaded, how mistakes and signals end."""

import json
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable

import pytest
import typer

from vllm_av import __version__
from vllm_av.cli import app as cli
from vllm_av.errors import Code, SetupError

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            cli.main(args)
        out, err = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return caught.value.code, out, err

    return call


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., None]], None]:
    """Mount a function as the verb ``doctor``."""

    def mount(function: Callable[..., None]) -> None:
        module = types.ModuleType("vllm_av.cli.doctor")
        module.app = typer.Typer(add_completion=False, rich_markup_mode=None)  # type: ignore[attr-defined]
        module.app.command()(function)
        monkeypatch.setitem(sys.modules, "vllm_av.cli.doctor", module)

    return mount


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"vllm_av {__version__}\n", "")


def test_help_lists_every_verb_and_loads_none(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "import_module", lambda name: pytest.fail(f"{name} was loaded"))
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    for name in cli.VERBS:
        assert f"\n  {name} " in out


def test_no_verb_shows_the_help_and_counts_as_a_mistake(run: Run) -> None:
    code, out, _ = run()
    assert code == 2
    assert out.startswith("Usage: vllm-av ")


def test_an_unknown_verb_is_one_line(run: Run) -> None:
    code, out, err = run("bogus")
    assert (code, out) == (2, "")
    assert err.startswith("error: [AV-USAGE] No such command 'bogus'")
    assert f"verbs: {', '.join(cli.VERBS)};" in err
    assert err.count("\n") == 1


def test_an_unknown_verb_under_json_is_an_object(run: Run) -> None:
    code, out, err = run("bogus", "--json")
    assert (code, err) == (2, "")
    assert json.loads(out)["error"]["code"] == "AV-USAGE"


def test_an_unknown_option_names_the_verbs_help(run: Run) -> None:
    code, _, err = run("doctor", "--bogus")
    assert code == 2
    assert "--bogus" in err
    assert "see `vllm-av doctor --help`" in err
    assert err.count("\n") == 1


def test_a_verb_answers_its_own_help(run: Run) -> None:
    code, out, _ = run("doctor", "--help")
    assert code == 0
    assert out.startswith("Usage: vllm-av doctor ")


def test_a_verb_of_several_shows_its_help_when_called_alone(run: Run) -> None:
    code, out, err = run("patch")
    assert (code, err) == (2, "")
    assert out.startswith("Usage: vllm-av patch ")
    assert "\n  apply " in out


def test_a_mistake_below_a_verb_is_one_line(run: Run) -> None:
    code, _, err = run("patch", "bogus")
    assert code == 2
    assert err.startswith(
        "error: [AV-USAGE] No such command 'bogus'; the options of `vllm-av patch`"
    )


def test_json_in_the_wrong_place_is_told_the_right_one(run: Run) -> None:
    code, out, _ = run("patch", "--json", "status")
    assert code == 2
    assert json.loads(out)["error"]["fix"] == "put --json last"


def test_a_verb_that_cannot_be_loaded_is_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vllm_av.cli.doctor", None)
    code, out, err = run("doctor")
    assert (code, out) == (2, "")
    assert err.startswith("error: [AV-VERB-IMPORT] ")


def test_the_exit_code_of_a_verb_is_passed_on(
    run: Run, verb: Callable[[Callable[..., None]], None]
) -> None:
    def no() -> None:
        raise typer.Exit(1)

    verb(no)
    assert run("doctor")[0] == 1


def test_a_mistake_that_a_verb_lets_out_is_one_line(
    run: Run, verb: Callable[[Callable[..., None]], None]
) -> None:
    def wrong() -> None:
        raise SetupError(Code.CACHE_DIR, "given", "allowed", "fix")

    verb(wrong)
    assert run("doctor") == (2, "", "error: [AV-CACHE-DIR] given; allowed; fix\n")


def test_a_fault_of_ours_keeps_its_traceback(
    verb: Callable[[Callable[..., None]], None],
) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    verb(broken)
    with pytest.raises(ZeroDivisionError):
        cli.main(["doctor"])


def test_ctrl_c_ends_with_130_and_no_traceback() -> None:
    program = (
        # A shell that starts programs in the background lets them ignore the signal.
        "import signal, sys, time, types, typer\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "module = types.ModuleType('vllm_av.cli.doctor')\n"
        "module.app = typer.Typer()\n"
        "@module.app.command()\n"
        "def sleep() -> None:\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        "sys.modules['vllm_av.cli.doctor'] = module\n"
        "from vllm_av.cli.app import main\n"
        "main(['doctor'])\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=30) == 130
        assert child.stderr.read() == ""


@pytest.mark.parametrize("arguments", ["doctor", "doctor --json", "--help"])
def test_a_reader_that_goes_away_gets_no_traceback(arguments: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "vllm_av", *arguments.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.wait(timeout=30) == cli.EXIT_STDOUT_CLOSED
        assert child.stderr.read() == ""
