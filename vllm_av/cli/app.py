"""The command ``vllm-av``: finds the verb, loads only its module, reports mistakes in one line.

Rule: a verb's module is imported when the verb is called and not before, so that a broken vLLM
stops neither ``vllm-av patch`` nor ``vllm-av doctor``. Only typer's public names are used, since
a user's environment brings its own typer.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer
from typer.main import get_command

from vllm_av import __version__
from vllm_av.cli.output import EXIT_MISTAKE, fail
from vllm_av.errors import Code, SetupError, VllmAvError

PROGRAM = "vllm-av"
EXIT_INTERRUPTED = 130
EXIT_STDOUT_CLOSED = 1  # what typer and rich use themselves

VERBS = {
    "patch": "Verify, apply, revert and export the patch series for vLLM.",
    "doctor": "Say what is installed here and what is wrong with it.",
    "scorers": "List the scorers, what each needs, and what auto chooses.",
    "config": "Check and fill in adaptive_verification_config, and show what it may hold.",
    "check": "Say whether a model, GPU and config can run adaptive verification, and why not.",
    "trace": "Record, replay and report traces of labelled drafts.",
    "demo": "Run SmolLM2 in three arms and compare: none, fixed K, adaptive.",
}
"""Verb -> its line in ``--help``; the module is ``vllm_av.cli.<verb>`` and holds ``app``."""

# The verb's own typer parses what follows the verb, "--help" and unknown options included.
_PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}


def main(argv: Sequence[str] | None = None) -> None:
    """Run one verb and leave with its exit code (see :mod:`vllm_av.cli.output`)."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(args)
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; Python's own flush at exit must not complain again.
        sys.stdout = None
        code = EXIT_STDOUT_CLOSED
    raise SystemExit(code)


def _run(args: list[str]) -> int:
    as_json = "--json" in args
    try:
        return _invoke(_root(), args, PROGRAM)
    except typer.Abort:
        return EXIT_INTERRUPTED
    except VllmAvError as error:
        return _mistake(error, as_json=as_json)
    except Exception as error:
        # Typer's own classes for these moved between releases; each has had ``format_message``.
        describe = getattr(error, "format_message", None)
        if describe is None:
            raise
        message = str(describe()).strip()
        if message.startswith("Usage: "):  # a group of verbs was called without one
            typer.echo(message)
            return EXIT_MISTAKE
        path = getattr(getattr(error, "ctx", None), "command_path", None)
        return _mistake(_usage_error(message, args, path), as_json=as_json)


def _invoke(app: typer.Typer, args: list[str], program: str) -> int:
    code = get_command(app).main(args=args, prog_name=program, standalone_mode=False)
    return code if isinstance(code, int) else 0


def _root() -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.callback(invoke_without_command=True)
    def root(
        context: typer.Context,
        version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    ) -> None:
        """Adaptive verification for vLLM's speculative decoding."""
        if version:
            typer.echo(f"vllm_av {__version__}")
            raise typer.Exit
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())
            raise typer.Exit(EXIT_MISTAKE)

    for verb, line in VERBS.items():
        app.command(verb, help=line, add_help_option=False, context_settings=_PASS_THROUGH)(_verb)
    return app


def _verb(context: typer.Context) -> None:
    verb = str(context.info_name)
    try:
        module = import_module(f"vllm_av.cli.{verb}")
    except ImportError as error:
        raise SetupError(
            Code.VERB_IMPORT,
            given=f"`{PROGRAM} {verb}` cannot be loaded ({error})",
            allowed="an environment that holds all of vllm_av's dependencies",
            fix=f"install vllm_av again; `{PROGRAM} doctor` shows what is there",
        ) from error
    raise typer.Exit(_invoke(module.app, context.args, f"{PROGRAM} {verb}"))


def _usage_error(message: str, args: list[str], path: str | None) -> SetupError:
    """``path``: the command that was asked, its verb's own verb included, where it is known."""
    verb = next((arg for arg in args if arg in VERBS), None)
    command = path or (f"{PROGRAM} {verb}" if verb else PROGRAM)
    return SetupError(
        Code.USAGE,
        given=message.rstrip("."),
        allowed=f"verbs: {', '.join(VERBS)}" if verb is None else f"the options of `{command}`",
        fix="put --json last" if "--json" in message else f"see `{command} --help`",
    )


def _mistake(error: VllmAvError, *, as_json: bool) -> int:
    try:
        fail(error, as_json=as_json)
    except typer.Exit as leaving:
        return leaving.exit_code
