"""Running servers, found among the processes that a made-up /proc holds, and among real ones."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_av.doctor.servers import Running, Titled, running, serve_arguments

SERVE = ("/venv/bin/python3.11", "/venv/bin/vllm", "serve", "m", "--port", "1")


def _process(root: Path, pid: int, words: tuple[str, ...] | bytes, parent: int = 1) -> Path:
    own = root / "proc" / str(pid)
    (own / "ns").mkdir(parents=True)
    text = words if isinstance(words, bytes) else b"".join(w.encode() + b"\0" for w in words)
    (own / "cmdline").write_bytes(text)
    (own / "status").write_text(f"Name:\tx\nPPid:\t{parent}\n")
    (own / "environ").write_bytes(b"VLLM_USE_V2_MODEL_RUNNER=1\0BAD\0X=\xff\0")
    (own / "cwd").symlink_to("/srv")
    (own / "ns/mnt").symlink_to("mnt:[1]")
    return own


def _own_file_system(root: Path) -> None:
    (root / "proc/self/ns").mkdir(parents=True)
    (root / "proc/self/ns/mnt").symlink_to("mnt:[1]")


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (SERVE, ("m", "--port", "1")),
        (("python", "-X", "dev", "-u", "vllm", "serve"), ()),
        (("/a/python3", "-m", "vllm.entrypoints.cli.main", "serve", "m"), ("m",)),
        (("python", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"), ("--model", "m")),
        (("python", "/s/vllm/entrypoints/openai/api_server.py", "--model", "m"), ("--model", "m")),
    ],
)
def test_the_ways_to_start_a_server(words: tuple[str, ...], arguments: tuple[str, ...]) -> None:
    found = serve_arguments(words)
    assert found == (words[0], arguments)


@pytest.mark.parametrize(
    "words",
    [
        ("bash", "-c", "vllm serve m"),
        ("tini", "--", *SERVE),
        ("grep", "vllm", "serve"),
        ("python", "vllm", "bench", "serve"),
        ("python", "-m", "vllm.entrypoints.cli.main", "bench"),
        ("python", "-m", "http.server"),
        ("python", "-m"),
        ("python", "-c", "print(1)", "vllm", "serve"),
        ("python", "script.py", "vllm", "serve"),
        ("python",),
        ("",),
        (),
    ],
)
def test_what_is_no_server(words: tuple[str, ...]) -> None:
    assert serve_arguments(words) is None


def test_a_server_with_its_folder_and_variables(tmp_path: Path) -> None:
    _own_file_system(tmp_path)
    _process(tmp_path, 7, SERVE)
    (server,) = running(tmp_path).servers
    assert (server.pid, server.arguments) == (7, ("m", "--port", "1"))
    assert (server.folder, server.python) == (Path("/srv"), "/venv/bin/python3.11")
    assert server.environ == {"VLLM_USE_V2_MODEL_RUNNER": "1", "X": "\udcff"}
    assert not server.elsewhere
    assert "VLLM_USE" not in repr(server)


def test_a_server_in_a_container(tmp_path: Path) -> None:
    _own_file_system(tmp_path)
    own = _process(tmp_path, 7, SERVE)
    (own / "ns/mnt").unlink()
    (own / "ns/mnt").symlink_to("mnt:[2]")
    assert running(tmp_path).servers[0].elsewhere


def test_copies_and_engines_of_a_server_are_not_told_again(tmp_path: Path) -> None:
    _process(tmp_path, 7, SERVE)
    _process(tmp_path, 8, SERVE, parent=7)
    _process(tmp_path, 9, b"VLLM::EngineCore\0\0\0\0", parent=7)
    _process(tmp_path, 10, b"VLLM::Worker_TP0  ", parent=9)
    found = running(tmp_path)
    assert ([server.pid for server in found.servers], found.titled) == ([7], ())


def test_two_servers_of_one_command_line(tmp_path: Path) -> None:
    _process(tmp_path, 7, SERVE)
    _process(tmp_path, 8, SERVE)
    assert [server.pid for server in running(tmp_path).servers] == [7, 8]


def test_an_engine_that_no_server_started_is_told_once(tmp_path: Path) -> None:
    _process(tmp_path, 6, ("python", "batch.py"))
    _process(tmp_path, 7, b"VLLM::EngineCore\0rest of the words\0", parent=6)
    _process(tmp_path, 8, b"VLLM::Worker_TP0\0", parent=7)
    found = running(tmp_path)
    assert found == Running((), (Titled(7, "VLLM::EngineCore"),))
    assert str(found.titled[0]).startswith("VLLM::EngineCore: not asked, ")


def test_other_users_and_processes_that_go_are_left_out(tmp_path: Path) -> None:
    _process(tmp_path, 7, SERVE)
    (_process(tmp_path, 8, SERVE) / "status").unlink()
    assert running(tmp_path, user=os.getuid() + 1) == Running()
    assert [server.pid for server in running(tmp_path).servers] == [7]
    assert running(tmp_path / "nothing") == Running()


def test_a_real_process_is_found(tmp_path: Path) -> None:
    script = tmp_path / "vllm"
    script.write_text("print('up', flush=True)\ninput()\n")
    words = [sys.executable, str(script), "serve", "a model", "--seed", "5"]
    pipe = subprocess.PIPE
    environ = {**os.environ, "VLLM_MARK": "here"}
    with subprocess.Popen(words, cwd=tmp_path, env=environ, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = {server.pid: server for server in running().servers}
        process.communicate(b"\n")
    server = found[process.pid]
    assert server.arguments == ("a model", "--seed", "5")
    assert (server.folder, server.python) == (tmp_path, sys.executable)
    assert server.environ["VLLM_MARK"] == "here"
    assert not server.elsewhere
