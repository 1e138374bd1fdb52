"""What several of the verbs below ``vllm-av patch`` take or say."""

from collections.abc import Sized
from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Answer with one JSON object.")]
Site = Annotated[
    Path | None,
    typer.Option(
        help="Another vLLM: a site-packages folder, an environment, an unpacked wheel, or an "
        "image's root. Without it: this interpreter's.",
        exists=True,
        file_okay=False,
    ),
]


def count(things: Sized, one: str, many: str | None = None) -> str:
    """``3 files``, ``1 patch``."""
    size = len(things)
    return f"{size} {one if size == 1 else many or one + 's'}"
