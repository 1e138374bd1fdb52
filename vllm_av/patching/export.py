"""Write patches again: a new one from edits, or edits folded into one that exists.

Rule: a patch whose files were not edited keeps its text byte for byte.
"""

from datetime import datetime

from vllm_av.errors import Code, PatchError
from vllm_av.patching.diff import REGULAR, render_diff
from vllm_av.patching.mail import Patch, compose, compose_head
from vllm_av.patching.script import compare, split_lines
from vllm_av.patching.series import Files


def new_patch(name: str, message: str, before: Files, after: Files, date: datetime) -> Patch:
    """A patch that turns ``before`` into ``after``.

    Raises:
        PatchError: AV-PATCH-EXPORT, where nothing differs; AV-PATCH-SERIES, on a bad message.
    """
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    if not changed:
        raise PatchError(
            Code.PATCH_EXPORT,
            f"nothing was edited, so {name} would be empty",
            "a patch changes at least one file",
            "edit the tree first",
        )
    parts = [render_change(path, before.get(path), after.get(path)) for path in changed]
    return compose(name, compose_head(message, date), parts)


def render_change(path: str, old: bytes | None, new: bytes | None) -> bytes:
    """The change of one file from scratch."""
    script = compare(split_lines(old or b""), split_lines(new or b""))
    old_mode = None if old is None else REGULAR
    new_mode = None if new is None else REGULAR
    return render_diff(path, old, new, script, old_mode, new_mode)
