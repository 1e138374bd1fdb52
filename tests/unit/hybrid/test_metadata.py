"""What the mixture says of itself."""

from ci.hybrid.metadata import lines_by_path, metadata, record
from tests.unit.hybrid.conftest import METADATA
from vllm_av.patching.tree import groups_for, parse_record


def test_the_version_takes_the_cpu_and_the_gpus_requirements_go() -> None:
    head, _, description = metadata(METADATA).partition("\n\n")
    assert head.splitlines() == [
        "Metadata-Version: 2.4",
        "Name: vllm",
        "Version: 0.33.0+cpu",
        "License-File: LICENSE",
        "Requires-Dist: regex",
        "Requires-Dist: orjson>=3.11.6",
        "Provides-Extra: nv",
        'Requires-Dist: nvtx==0.2.15; extra == "nv"',
    ]
    assert description == "Version: 0.33.0\nRequires-Dist: torch\n"


def test_both_groups_of_patches_fit_that_version() -> None:
    assert groups_for("vllm", "0.33.0+cpu") == ("core", "cpu")


def test_a_record_keeps_lines_and_sums_what_is_new() -> None:
    kept = lines_by_path('vllm/a.py,sha256=abc,3\n"vllm/E=1,N=2.json",sha256=def,4\n')
    assert list(kept) == ["vllm/a.py", "vllm/E=1,N=2.json"]
    text = record(kept, {"x.dist-info/METADATA": b""}, "x.dist-info/RECORD")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert parse_record(text.encode())["x.dist-info/METADATA"] == empty
    assert text.splitlines()[0] == '"vllm/E=1,N=2.json",sha256=def,4'
    assert "x.dist-info/RECORD,," in text.splitlines()
