"""Hub names: what the cache has, and nothing from the network."""

import json
from pathlib import Path

import pytest

from vllm_av.errors import CheckError, Code
from vllm_av.preflight.model import files, read_draft, read_target

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "vocab_size": 1000,
}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub's cache with one model in it, and a working folder that has none."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    stored = tmp_path / "hub/models--org--small"
    snapshot = stored / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    blob = stored / "blobs/1234"
    blob.parent.mkdir()
    blob.write_text(json.dumps(CONFIG))
    (snapshot / "config.json").symlink_to(blob)
    (stored / "refs/pr").mkdir(parents=True)
    (stored / "refs/main").write_text(COMMIT)
    (stored / "refs/pr/1").write_text(COMMIT + "\n")
    return tmp_path / "hub"


@pytest.mark.parametrize(
    ("variable", "part"),
    [("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "..")],
)
def test_where_the_cache_is(
    variable: str, part: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(cache / part))
    facts = read_target("org/small")
    assert facts.name == "org/small"
    assert facts.source.endswith(f"{COMMIT}/config.json")
    assert facts.groups[0].count == 2


def test_where_it_is_by_default(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "cache"))
    assert files.cached_models() == cache / "cache/huggingface/hub"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(cache))
    assert files.cached_models() == cache / ".cache/huggingface/hub"


@pytest.mark.parametrize("revision", [None, "main", "pr/1", COMMIT])
def test_a_revision(revision: str | None, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    assert read_target("org/small", revision=revision).vocab_size == 1000


@pytest.mark.parametrize("revision", ["other", "../main", "", "a\0b", "/etc", ".."])
def test_a_revision_that_is_not_there(
    revision: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    if not revision:  # as if none were named
        assert read_target("org/small", revision=revision).vocab_size == 1000
        return
    with pytest.raises(CheckError, match="does not have revision") as caught:
        read_target("org/small", revision=revision)
    assert caught.value.code is Code.QUESTION_MODEL


def test_a_model_that_is_not_there(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    with pytest.raises(CheckError, match="hf download org/other") as caught:
        read_target("org/other")
    assert caught.value.code is Code.QUESTION_MODEL


def test_a_drafter_that_is_not_there_is_fetched_with_its_weights(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those in one file have the names of their tensors in its header alone."""
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    spec = {"model": "org/other", "method": "eagle3", "num_speculative_tokens": 3}
    with pytest.raises(CheckError, match=r"fetch it: hf download org/other$") as caught:
        read_draft(spec, read_target("org/small"))
    assert caught.value.code is Code.QUESTION_DRAFT


def test_a_ref_to_a_snapshot_that_was_removed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    (cache / "models--org--small/refs/main").write_text("../../../etc")
    with pytest.raises(CheckError, match="does not have revision"):
        read_target("org/small")


def test_a_folder_of_that_name_comes_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    folder = cache.parent / "org/small"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": 7}))
    assert read_target("org/small").groups[0].count == 7


def test_a_cache_of_a_user_that_is_not_there(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, "~nosuchuser/x")
            with pytest.raises(CheckError) as caught:
                read_target("org/small")
            assert caught.value.code is Code.QUESTION_MODEL
