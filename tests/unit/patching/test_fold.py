"""Edits at any place of any series: put anywhere, they leave the tree as it was edited."""

from collections.abc import Sequence

from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.unit.patching.trees import MESSAGE, VERSION, WHEN
from vllm_av.errors import Code, PatchError
from vllm_av.patching.fold import Edits, fold, insert, new_patch
from vllm_av.patching.mail import Patch
from vllm_av.patching.series import Files, apply_patch
from vllm_av.patching.tree import Source

PATHS = ("vllm/a.py", "vllm/b.py")
BASE: Files = {path: b"".join(b"%d\n" % number for number in range(40)) for path in PATHS}
Spots = list[tuple[str, int, bytes]]

SPOTS = st.lists(
    st.tuples(
        st.sampled_from(PATHS), st.integers(0, 39), st.sampled_from([b"", b"x\n", b"%d\ny\n"])
    ),
    max_size=3,
)


def _edited(files: Files, spots: Spots) -> Files:
    """Files with a change at lines that are named by what they were at first."""
    new = dict(files)
    for path, number, text in spots:
        content = new[path] or b""
        line = b"%d\n" % number
        if content.startswith(line) or b"\n" + line in content:
            at = 0 if content.startswith(line) else content.index(b"\n" + line) + 1
            put = text % number if b"%" in text else text
            new[path] = content[:at] + put + content[at + len(line) :]
    return new


def _apply(patches: Sequence[Patch]) -> Files:
    files = dict(BASE)
    for patch in patches:
        files |= apply_patch(patch, files).after
    return files


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["core", "cpu"]), SPOTS), min_size=1, max_size=4),
    SPOTS,
    st.integers(0, 4),
    st.sampled_from(["by itself", "into", "new core", "new cpu"]),
    st.integers(0, 3),
)
def test_the_tree_stays_as_it_was_edited(
    changes: list[tuple[str, Spots]], spots: Spots, at: int, how: str, number: int
) -> None:
    files = dict(BASE)
    steps = []
    for group, own in sorted(changes, key=lambda change: change[0]):
        after = _edited(files, own)
        if after != files:
            name = f"{group}/step-{len(steps)}.patch"
            patch = new_patch(name, MESSAGE.format(title="It"), files, after, WHEN)
            steps.append(apply_patch(patch, files))
            files = after
    at = min(at, len(steps))
    applied = _apply([step.patch for step in steps[:at]])
    edited = _edited(applied, spots)
    found = {path: edited[path] for path in PATHS if edited[path] != applied[path]}
    edits = Edits(tuple(steps), at, found, Source("here", "vllm", VERSION, BASE.get))
    new = how.removeprefix("new ") + "/new.patch"
    try:
        if how.startswith("new"):
            patches = insert(edits, new, MESSAGE.format(title="New"), WHEN)
        else:
            names = [step.patch.name for step in steps[:at]]
            patches = fold(edits, names[number % at] if how == "into" and at else None)
    except PatchError as error:
        event(f"refused: {error.given.split()[-1]}")
        if error.code is not Code.PATCH_EXPORT:
            raise
        return
    event("written")
    # Each applies to what the one before it left, and is in normal form.
    whole = _apply(patches)
    state = dict(BASE)
    for patch in patches:
        step = apply_patch(patch, state)
        assert step.render() == patch
        state |= step.after
    # What was applied, with the edits, is the tree.
    kept = {step.patch.name for step in steps[:at]} | {new}
    if [patch.name in kept for patch in patches] == sorted(
        (patch.name in kept for patch in patches), reverse=True
    ):
        assert _apply([patch for patch in patches if patch.name in kept]) == edited
    # Nothing that was not applied is lost: its changes still follow, beside the edits.
    if at == len(steps):
        assert whole == edited
    if not found:
        assert patches == [step.patch for step in steps]
