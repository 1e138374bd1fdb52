"""The drafters that the package carries fit the target that they are demonstrated with."""

import json
from pathlib import Path

import pytest

from vllm_av.demo.checkpoint import weights
from vllm_av.demo.comparison import compare
from vllm_av.demo.drafter import DRAFTERS, carried, checkpoint, find
from vllm_av.demo.settings import Settings
from vllm_av.drafters import TYPES
from vllm_av.errors import Code, DemoError

_REAL = carried("mtp").parent
# Of every drafter; those that read the target's states share its width as well.
_VOCABULARY = {"vocab_size": "llama.vocab_size"}
_STATES = _VOCABULARY | {
    "hidden_size": "llama.embedding_length",
    "max_position_embeddings": "llama.context_length",
}
# A block drafter's layers turn by an angle of their own, an EAGLE head's by the target's.
_SHARED = {
    "draft_model": _VOCABULARY,
    "dflash": _STATES,
    "dspark": _STATES,
    "eagle": _STATES | {"rope_theta": "llama.rope.freq_base"},
    "eagle3": _STATES | {"rope_theta": "llama.rope.freq_base"},
}
_ON_SMOLLM2 = [name for name, each in DRAFTERS.items() if not each.own_target]


@pytest.mark.parametrize("name", _ON_SMOLLM2)
def test_the_config_matches_the_target(name: str) -> None:
    from gguf import GGUFReader

    fields = GGUFReader(weights()).fields
    config = json.loads((carried(name) / "config.json").read_text(encoding="utf-8"))
    target = {key: fields[field].contents() for key, field in _SHARED[find(name).method].items()}
    assert {key: config[key] for key in target} == target


def test_each_is_a_type_of_the_table() -> None:
    types = {row.name: row for row in TYPES}
    for name, drafter in DRAFTERS.items():
        assert drafter.method in types[name].methods


def test_an_unknown_one_is_told_which_there_are() -> None:
    with pytest.raises(DemoError, match="eagle3, mtp, dflash") as caught:
        find("medusa")
    assert caught.value.code is Code.DEMO_OPTION


def test_one_that_lies_in_its_target_is_taken_as_it_is() -> None:
    assert checkpoint("mtp", Path("nowhere")) == carried("mtp")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that carries nothing yet, of which this is ``data``."""
    monkeypatch.setattr("vllm_av.demo.drafter.files", lambda _: tmp_path / "package")
    folder = tmp_path / "package/data"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("name", DRAFTERS)
def test_one_that_is_not_there_is_told_before_anything_is_made(
    name: str, data: Path, cache: Path
) -> None:
    with pytest.raises(DemoError) as caught:
        compare(Settings(drafter=name, num_speculative_tokens=1), lambda *_: None)
    assert caught.value.code is Code.DEMO_CHECKPOINT
    assert str(data / find(name).folder) in caught.value.given
    assert f"make drafters DRAFTER={name}`" in caught.value.fix
    assert f"-m vllm_av.training install {name}`" in caught.value.fix
    assert not cache.exists()


@pytest.mark.parametrize(
    ("file", "text"), [("config.json", "[]"), ("model.safetensors", ""), ("config.json", "{")]
)
def test_one_that_lies_in_its_target_is_checked_before_the_engine(
    file: str, text: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vllm_av.demo.comparison.run_arm", lambda *_: pytest.fail("an engine"))
    folder = data / "mimo-mtp"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((_REAL / "mimo-mtp" / name).read_bytes())
    (folder / file).write_text(text)
    with pytest.raises(DemoError) as caught:
        compare(Settings(drafter="mtp"), lambda *_: None)
    assert caught.value.code is Code.DEMO_CHECKPOINT
    assert caught.value.given.startswith(f"{folder / file}: ")
