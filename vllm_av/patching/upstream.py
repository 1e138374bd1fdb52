"""What a patch needs beside it to be sent to vLLM: the tests that go with it, and words.

``<root>/upstream/<group>/<name>.toml`` is for the patch of that name in every series, and
``<root>/upstream/tests`` holds the tests at their paths below vLLM's ``tests/``. Rule: every patch
of the newest series has its data and at least one test, every test belongs to one patch, and
nothing else lies there. What the newest vLLM needs no longer is not sent.
"""

import re
import tomllib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from vllm_av.errors import Code, PatchError
from vllm_av.patching.mail import ENDS_MESSAGE
from vllm_av.patching.series import entries, versions

UPSTREAM = "upstream"
TESTS = "tests"
RAN_ON = "ran-on.toml"
"""vLLM version -> what the tests ran on."""

_HEADER = b"# SPDX-License-Identifier: Apache-2.0\n# SPDX-FileCopyrightText: "
_PATH = re.compile(r"([a-z0-9_]+/)*test_[a-z0-9_]+\.py")
_BESIDE = {RAN_ON, "ruff.toml"}


@dataclass(frozen=True)
class Beside:
    """What lies beside one patch."""

    tests: tuple[str, ...]
    """Paths below vLLM's ``tests/``."""
    related: tuple[int, ...]
    """Numbers of vLLM's issues and pull requests."""
    passed: int
    """How many tests pass with the patch."""
    failed_without: int
    """How many of them fail without it, on what it requires alone."""
    test_plan: str
    """What the tests show, in words."""
    test_result: str
    """What else was measured, and on what; may be empty."""


def read_beside(root: Path, name: str) -> Beside:
    """The data of a patch.

    Args:
        root: as for :func:`vllm_av.patching.series.read_series`.
        name: ``group/name.patch``.

    Raises:
        PatchError: AV-PATCH-UPSTREAM, naming the patch and what is wrong.
    """
    path = _data_file(root, name)
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _refused(name, f"{UPSTREAM}/{path.relative_to(root / UPSTREAM)} is missing") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _refused(name, f"{path.name} cannot be read as TOML ({error})") from None
    if why := next(_wrong(found), None):
        raise _refused(name, f"{path.name}: {why}")
    found |= {key: tuple(found[key]) for key in ("tests", "related")}
    found |= {key: found[key].strip() for key in ("test_plan", "test_result")}
    return Beside(**found)


def read_test(root: Path, name: str, path: str) -> bytes:
    """The test file of a patch.

    Raises:
        PatchError: AV-PATCH-UPSTREAM, naming the patch and what is wrong with it.
    """
    try:
        content = (root / UPSTREAM / TESTS / path).read_bytes()
    except OSError as error:
        raise _refused(name, f"its test {path} cannot be read ({error.strerror})") from None
    if why := _fault(path, content):
        raise _refused(name, f"its test {path} {why}")
    return content


def ran_on(root: Path, name: str) -> str:
    """What the tests of a patch ran on: the newest vLLM with its patch that is written down.

    Raises:
        PatchError: AV-PATCH-UPSTREAM.
    """
    path = root / UPSTREAM / RAN_ON
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _refused(name, f"{RAN_ON} cannot be read as TOML ({error})") from None
    for version in reversed(versions(root)):
        if version in said and name in entries(root / version):
            return str(said[version])
    raise _refused(name, f"{RAN_ON} has no version whose series lists it")


def sendable(root: Path) -> list[str]:
    """The names of the patches that vLLM has a use for: those of the newest series."""
    return entries(root / versions(root)[-1])


def upstream_problems(root: Path, names: Sequence[str]) -> list[str]:
    """What is missing or wrong beside the patches of one series, and beside none.

    A root without any of it, as in a series of one's own, has no problem.
    """
    if not (root / UPSTREAM).is_dir():
        return []
    problems: list[str] = []
    sent = sendable(root)
    for name in names:
        if name not in sent:
            continue
        try:
            for path in read_beside(root, name).tests:
                read_test(root, name, path)
            ran_on(root, name)
        except PatchError as error:
            problems.append(error.given)
    return [*problems, *_owners(root)]


def _owners(root: Path) -> Iterator[str]:
    """Tests of two patches or of none, and data of no patch, for all series."""
    listed = {name for version in versions(root) for name in entries(root / version)}
    owners: dict[str, list[str]] = {}
    for name in sorted(listed):
        try:
            for path in read_beside(root, name).tests:
                owners.setdefault(path, []).append(name)
        except PatchError:
            return  # told by its name; whose tests are whose is known afterwards
    for path, names in owners.items():
        if len(names) > 1:
            yield f"{names[1]}: its test {path} belongs to {names[0]} already"
    known = {_data_file(root, name) for name in listed}
    known |= {root / UPSTREAM / TESTS / path for path in owners}
    known |= {root / UPSTREAM / path for path in _BESIDE}
    for file in sorted(set(_files(root / UPSTREAM)) - known):
        yield f"{UPSTREAM}/{file.relative_to(root / UPSTREAM)}: belongs to no patch"


def _files(folder: Path) -> Iterable[Path]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return (path for path in files if "__pycache__" not in path.parts)


def _data_file(root: Path, name: str) -> Path:
    return root / UPSTREAM / f"{name.removesuffix('.patch')}.toml"


def _wrong(found: dict[str, Any]) -> Iterator[str]:
    """What is wrong with the data, first things first."""
    keys = [field.name for field in fields(Beside)]
    yield from (f"the key {key} is missing" for key in keys if key not in found)
    yield from (f"the key {key!r} is not known" for key in found if key not in keys)
    for key, kind in (("tests", str), ("related", int)):
        if not isinstance(found[key], list) or {*map(type, found[key])} - {kind}:
            yield f"{key} is no list of {kind.__name__}"
    if not found["tests"]:
        yield "it names no test"
    yield from (f"{path!r} is no path of a test" for path in found["tests"] if not _is_path(path))
    for key in ("passed", "failed_without"):
        if type(found[key]) is not int or found[key] < 1:
            yield f"{key} is {found[key]!r}, not the number of at least one test"
    if found["failed_without"] > found["passed"]:
        yield f"of {found['passed']} tests that pass, {found['failed_without']} fail without it"
    for key in ("test_plan", "test_result"):
        if not isinstance(found[key], str):
            yield f"{key} is no text"
        for line in found[key].splitlines():
            if ENDS_MESSAGE.match(line):
                yield f"git would take {line!r} for the end of the message"
        if "vllm_av" in found[key]:
            yield f"{key} mentions vllm_av"
    if not found["test_plan"].strip():
        yield "test_plan is empty"


def _is_path(path: str) -> bool:
    return _PATH.fullmatch(path) is not None


def _fault(path: str, content: bytes) -> str | None:
    if not content.startswith(_HEADER):
        return "does not begin with vLLM's two SPDX lines"
    if b"vllm_av" in content:
        return "mentions vllm_av"
    if not content.endswith(b"\n"):
        return "does not end with a newline"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(content, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return f"does not compile ({error})"
    return None


def _refused(name: str, what: str) -> PatchError:
    return PatchError(
        Code.PATCH_UPSTREAM,
        f"{name}: {what}",
        "a patch is sent with tests and the words of a pull request, which lie beside the series",
        "write them as patches/README.md says",
    )
