"""After a kill: end what was begun, whichever way is safe.

Rule: a file that is neither as the transaction found it nor as it wanted it is somebody's work;
then nothing is done, unless the whole vLLM was installed again in the meantime.
"""

import os
from collections.abc import Sequence

from vllm_av.errors import PatchError
from vllm_av.patching.files import remove_folder
from vllm_av.patching.state import (
    MANIFEST,
    Change,
    Manifest,
    bytecode_of,
    damaged,
    load_manifest,
)
from vllm_av.patching.transaction import (
    BACK,
    FOLDER,
    FORWARD,
    Journal,
    Plan,
    Side,
    back,
    clear,
    commit,
    ending,
    finish,
    forward,
    is_at,
    pending,
    run,
    state_at,
)
from vllm_av.patching.tree import PACKAGE, Tree


def leftovers(tree: Tree) -> bool:
    """Did a command die before it touched the tree, or after all was done?"""
    if pending(tree):
        return False
    return (tree.state / FOLDER).exists() or (
        tree.state.exists() and not (tree.state / MANIFEST).exists()
    )


def discard_damaged(tree: Tree) -> str | None:
    """Remove a record that cannot be read, where vLLM is as the wheel brought it; says so.

    Raises:
        PatchError: AV-PATCH-STATE, where a file is otherwise: the record alone knows what to do.
    """
    try:
        pending(tree)
        load_manifest(tree)
    except PatchError:
        if tree.state.is_symlink() or not tree.state.is_dir() or not _as_installed(tree):
            raise
        remove_folder(tree.state)
        return "removed a damaged record: every file of vLLM is as the wheel brought it"
    return None


def _as_installed(tree: Tree) -> bool:
    listed = (path for path in tree.record if path.startswith(f"{PACKAGE}/"))
    return all(tree.is_pristine(path, tree.read(path)) for path in listed)


def recover(tree: Tree) -> str | None:
    """End what was cut short; says what it did, None where there was nothing.

    Raises:
        PatchError: AV-PATCH-STATE, where files were edited since, so that neither way is safe;
            AV-PATCH-WRITE.
    """
    found = pending(tree)
    if found is None:
        if not leftovers(tree):
            return None
        clear(tree)
        return "removed the working files of a stopped command"
    journal, way = found
    strange = _strange(tree, journal, "after" if way == "forward" else "before")
    if strange or (journal.dist, journal.version) != (tree.dist, tree.version):
        if not _installed_again(tree, journal):
            raise damaged(
                tree,
                f"the {journal.verb} was interrupted and then {', '.join(strange)} changed; its "
                "record lies",
            )
        with ending(tree, journal):
            finish(tree, FORWARD if way == "forward" else BACK)
        manifest = load_manifest(tree)
        known = manifest.changes if manifest else ()
        folders = {*journal.made, *journal.dropped, *(manifest.folders if manifest else ())}
        clean_up(tree, [*journal.changes, *known], sorted(folders))
        return f"dropped an interrupted {journal.verb}: vLLM was installed again since"
    with ending(tree, journal):
        if way == "forward":
            forward(tree, journal)
            commit(tree, journal)
            return f"completed an interrupted {journal.verb}"
        back(tree, journal)
        finish(tree, BACK)
    return f"took back an interrupted {journal.verb}"


def _strange(tree: Tree, journal: Journal, here: Side) -> list[str]:
    """Files that are not as the cut-short transaction left them: placed, or to be placed."""
    there: Side = "before" if here == "after" else "after"
    strange = []
    for number, change in enumerate(journal.changes):
        staged = os.path.lexists(tree.state / FOLDER / here / str(number))
        waits = staged or state_at(change, here) is None
        fits = is_at(tree, change, here) or (waits and is_at(tree, change, there))
        if not fits and not change.is_bytecode:
            strange.append(change.path)
    return strange


def _installed_again(tree: Tree, journal: Journal) -> bool:
    """Is every file, apart from those that only a series brought, as today's RECORD says?"""
    ours = _brought(tree, journal.changes)
    return all(
        tree.is_pristine(change.path, tree.read(change.path))
        for change in journal.changes
        if not change.is_bytecode
        and not change.path.endswith(".dist-info/RECORD")
        and change.path not in ours
    )


def _brought(tree: Tree, changes: Sequence[Change]) -> list[str]:
    """New files of a series: an installer that does not know them leaves them."""
    return [
        change.path
        for change in changes
        if not change.is_bytecode
        and None in (change.before, change.after)
        and change.path not in tree.record
        and tree.read(change.path) is not None
        and (is_at(tree, change, "before") or is_at(tree, change, "after"))
    ]


def outlived(tree: Tree, manifest: Manifest) -> str | None:
    """Why a record speaks of a vLLM that is gone; None where it does not."""
    if (manifest.dist, manifest.version) != (tree.dist, tree.version):
        return f"it was {manifest.dist} {manifest.version} that had been patched"
    for change in manifest.sources.values():
        # A new file says nothing: an installer leaves those that it does not know.
        if change.before and is_at(tree, change, "after"):
            return None
    return "vLLM was installed again since it had been patched"


def clean_up(tree: Tree, changes: Sequence[Change], folders: Sequence[str]) -> None:
    """Forget what was applied to a vLLM that is gone, and remove what only a series brought."""
    ours = _brought(tree, changes)
    gone = dict.fromkeys([*ours, *bytecode_of(tree.site, ours)])
    run(tree, Plan("clean-up", gone, None, {}, dropped=folders))
