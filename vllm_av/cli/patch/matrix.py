"""``vllm-av patch matrix``: which vLLM there is a series for, and what was tested of it."""

import typer

from vllm_av.cli.output import emit, mistakes
from vllm_av.cli.patch.options import Json
from vllm_av.patching.matrix import matrix as matrix_of
from vllm_av.patching.series import series_root


def matrix(as_json: Json = False) -> None:
    """Which vLLM there is a series for, what was tested of it, and what that does not show."""
    with mistakes(as_json=as_json):
        found = matrix_of(series_root())
    emit(found.as_dict(), as_json=as_json, text=lambda: typer.echo(found.table(), nl=False))
