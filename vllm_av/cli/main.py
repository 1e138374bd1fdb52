"""The program ``vllm-av``: runs the command, or says in one line what it lacks to be loaded.

Rule: nothing but the standard library is needed to say it.
"""

import json
import sys

from vllm_av.errors import Code, SetupError


def main() -> None:
    """Run :func:`vllm_av.cli.app.main`; exit code 2 where its dependencies are missing."""
    try:
        from vllm_av.cli.app import main as command
    except ImportError as error:
        raise SystemExit(_cannot_be_loaded(error)) from None
    command()


def _cannot_be_loaded(why: ImportError) -> int:
    error = SetupError(
        Code.VERB_IMPORT,
        given=f"the command `vllm-av` cannot be loaded ({why})",
        allowed="an environment that holds vllm_av's dependencies, which come with vLLM",
        fix="install vLLM here, or run: pip install numpy pydantic rich typer",
    )
    if "--json" in sys.argv:
        print(json.dumps({"error": error.as_dict()}, indent=2, sort_keys=True))
    else:
        print(f"error: {error}", file=sys.stderr)
    return 2
