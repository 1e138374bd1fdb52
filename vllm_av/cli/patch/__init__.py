"""``vllm-av patch``: the series, and the vLLM that it is for. Each verb has its module here."""

import typer

from vllm_av.cli.patch.export import export
from vllm_av.cli.patch.installed import apply, revert, status
from vllm_av.cli.patch.matrix import matrix
from vllm_av.cli.patch.new_version import new_version
from vllm_av.cli.patch.verify import verify

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="The patch series, and the vLLM that it is for.",
    rich_markup_mode=None,
)
for verb in (verify, apply, revert, status, export, new_version, matrix):
    app.command()(verb)
