"""A core patch applies alone or says which others it needs; it is small."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unit.patching.trees import BODY, FILES, WHEN, write_series
from vllm_av.patching.export import export
from vllm_av.patching.install import apply
from vllm_av.patching.needs import needs_of
from vllm_av.patching.series import Series, read_series
from vllm_av.patching.tree import Tree
from vllm_av.patching.verify import tree_source, verify

A, B, C, D = (f"core/{letter}.patch" for letter in "abcd")
CONFIG = "vllm/config.py"


def _config(*changes: tuple[str, str]) -> dict[str, bytes | None]:
    text = BODY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return {CONFIG: text.encode()}


FAR = ("line_25 = 25\n", "line_25 = 250\n")
LONGER = ("line_3 = 3\n", "line_3 = 3\nmore = 1\nand_more = 2\n")
NEAR = ("and_more = 2\n", "and_more = 2\nstill_more = 3\n")


def _needs(series: Series) -> list[str]:
    return needs_of(series, FILES.get)


def _series(root: Path, requires: Mapping[str, str], **steps: Mapping[str, bytes | None]) -> Series:
    names = [f"core/{name}.patch" for name in steps]
    return write_series(root, *steps.values(), names=names, requires=requires)


def test_lines_moved_by_another_patch_are_no_need(root: Path) -> None:
    series = _series(root, {}, a=_config(LONGER), b=_config(LONGER, FAR))
    assert b"@@ -25," in series.patches[1].text  # in pristine files the hunk lies at 23
    assert _needs(series) == []


def test_a_need_that_is_not_said_is_named(root: Path) -> None:
    b = _config(LONGER, FAR)
    c = _config(LONGER, FAR, NEAR)
    assert _needs(_series(root, {}, a=_config(LONGER), b=b, c=c)) == [
        f"{C}: it does not apply alone: it needs `Requires: {A}`"
    ]
    assert _needs(_series(root, {C: B}, a=_config(LONGER), b=b, c=c)) == [
        f"{C}: it does not apply with {B} alone: it needs `Requires: {B}, {A}`"
    ]
    assert _needs(_series(root, {C: A}, a=_config(LONGER), b=b, c=c)) == []
    assert _needs(_series(root, {C: f"{A}, {B}"}, a=_config(LONGER), b=b, c=c)) == []


def test_needs_of_needs_are_found_by_themselves(root: Path) -> None:
    steps = {
        "a": _config(LONGER),
        "b": _config(LONGER, NEAR),
        "c": _config(LONGER, NEAR, FAR),
        "d": _config(LONGER, NEAR, FAR, ("still_more = 3", "still_more = 4")),
    }
    assert _needs(_series(root, {B: A, D: B}, **steps)) == []
    told = [f"{D}: it does not apply alone: it needs `Requires: {B}`"]
    assert _needs(_series(root, {B: A}, **steps)) == told


@pytest.mark.parametrize(
    ("requires", "problem"),
    [
        (
            {B: "core/z.patch"},
            f"{B}: Requires names 'core/z.patch', which the series does not list",
        ),
        ({B: "nonsense"}, f"{B}: Requires names 'nonsense', which the series does not list"),
        ({A: B}, f"{A}: Requires names {B}, which does not come before it"),
        ({A: A}, f"{A}: Requires names {A}, which does not come before it"),
    ],
)
def test_names_that_cannot_be(root: Path, requires: Mapping[str, str], problem: str) -> None:
    assert _needs(_series(root, requires, a=_config(LONGER), b=_config(LONGER, FAR))) == [problem]


def test_core_may_not_need_cpu(root: Path) -> None:
    names = ("cpu/first.patch", "core/second.patch")
    steps = (_config(LONGER), _config(LONGER, NEAR))
    requires = {"core/second.patch": "cpu/first.patch"}
    assert _needs(write_series(root, *steps, names=names, requires=requires)) == [
        "core/second.patch: Requires names cpu/first.patch, and core is applied without it"
    ]
    (problem,) = _needs(write_series(root, *steps, names=names))
    assert problem.startswith("core/second.patch: it does not apply alone: core/second.patch: ")
    assert problem.endswith(f"{CONFIG}: the lines of the hunk at line 4 are not there")


def test_an_import_of_another_patch_is_a_need_of_the_same_file(root: Path) -> None:
    importing = _config(("line_3 = 3\n", "line_3 = 3\nfrom vllm.worker import runner as run\n"))
    using = _config(
        ("line_3 = 3\n", "line_3 = 3\nfrom vllm.worker import runner as run\n"),
        ("line_25 = 25\n", "line_25 = run.last\n"),
    )
    elsewhere = {"vllm/untouched.py": b"run = 1\nprint(run)\n"}
    steps = {"a": importing, "b": using, "c": elsewhere}
    told = [f"{B}: it uses run: it needs `Requires: {A}`"]
    assert _needs(_series(root, {}, **steps)) == told
    assert _needs(_series(root, {B: A}, **steps)) == []


def test_cpu_is_asked_what_it_needs_of_core_and_of_cpu(root: Path) -> None:
    steps = [_config(LONGER), _config(LONGER, FAR), _config(LONGER, FAR, NEAR)]
    names = ["core/first.patch", "cpu/second.patch", "cpu/third.patch"]
    assert _needs(write_series(root, *steps, names=names)) == [
        "cpu/third.patch: it does not apply alone: it needs `Requires: core/first.patch`"
    ]
    requires = {"cpu/third.patch": "core/first.patch, cpu/second.patch"}
    assert _needs(write_series(root, *steps, names=names, requires=requires)) == []


def test_a_name_that_only_another_patch_brings_is_a_need(root: Path) -> None:
    steps: dict[str, dict[str, bytes | None]] = {
        "a": {"vllm/seam.py": b"class Seam:\n    width: int = 1\n\n    def choose(self): ...\n"},
        "b": _config(LONGER),
        "c": {"vllm/worker/__init__.py": b"from ..seam import Seam\n\nSeam().choose()\n"},
        "d": {"vllm/untouched.py": b"def local(x):\n    width = x\n    return width\n"},
    }
    told = f"{C}: it uses Seam, choose, vllm.seam: it needs `Requires: {A}`"
    assert _needs(_series(root, {}, **steps)) == [told]
    assert _needs(_series(root, {C: A}, **steps)) == []


def test_lines_and_names_that_are_needed_are_told_together(root: Path) -> None:
    seam: dict[str, bytes | None] = {"vllm/seam.py": b"def choose(): ...\n"}
    uses = ("still_more = 3\n", "still_more = choose()\n")
    steps = {
        "a": _config(LONGER),
        "b": seam,
        "c": _config(LONGER, NEAR, uses, ("line_1 = 1\n", "from vllm.seam import choose\n")),
    }
    told = f"{C}: it does not apply alone: it needs `Requires: {A}, {B}`"
    assert _needs(_series(root, {}, **steps)) == [told]
    assert _needs(_series(root, {C: f"{A}, {B}"}, **steps)) == []


def test_names_that_are_there_anyway_are_no_need(root: Path) -> None:
    start = {**FILES, "vllm/untouched.py": b"class Old:\n    def choose(self): ...\n"}
    steps: tuple[dict[str, bytes | None], ...] = (
        {"vllm/seam.py": b"def choose(): ...\n\n\ndef pick(): ...\n"},
        # It uses what the pristine files have, and what it brings in another file.
        {
            "vllm/untouched.py": start["vllm/untouched.py"] + b"\n\nOld().choose()\n",
            "vllm/mine.py": b"def pick(): ...\n",
            "vllm/worker/__init__.py": b"from vllm.mine import pick\n\npick()\n",
        },
    )
    series = write_series(root, *steps, names=(A, B), start=start)
    assert needs_of(series, start.get) == []


def test_verify_tells_what_is_needed_and_export_notes_it(root: Path, tree: Tree) -> None:
    series = write_series(root, _config(LONGER), _config(LONGER, FAR), names=(A, B))
    assert verify(root, tree_source(tree)).problems == ()
    apply(tree, series)
    (tree.site / CONFIG).write_bytes(_config(LONGER, FAR, NEAR)[CONFIG] or b"")
    exported = export(tree, tree_source(tree), series, None, into=B, date=WHEN)
    told = f"{B}: it does not apply alone: it needs `Requires: {A}`"
    assert exported.notes == (told,)
    assert verify(root, tree_source(tree)).problems == (told,)
    # The message is mended in its file, and the tree's record follows.
    path = series.folder / B
    removal = b"Removal: when vLLM does it itself\n"
    path.write_bytes(path.read_bytes().replace(removal, removal + f"Requires: {A}\n".encode()))
    assert verify(root, tree_source(tree)).problems == ()
    assert apply(tree, read_series(root, series.version)).done == "upgraded"


def test_a_core_patch_is_small(root: Path) -> None:
    many = "".join(f"new_{number} = {number}\n" for number in range(119))
    assert _needs(_series(root, {}, a={"vllm/new.py": many.encode()})) == []
    longer = {"vllm/new.py": f"{many}last = 1\n".encode()}
    assert _needs(_series(root, {}, a=longer)) == [
        f"{A}: it adds 120 lines; a core patch adds fewer than 120"
    ]
    assert _needs(write_series(root, longer)) == []  # cpu
