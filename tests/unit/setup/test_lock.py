"""The lock and pyproject agree."""

import tomllib
from pathlib import Path

from ci.lock import Wanted, lock_text, wanted
from ci.setup.pins import normal, read_pins
from vllm_av.environment import COMPANIONS

ROOT = Path(__file__).parents[3]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_extras_of_the_lock_are_resolved_together() -> None:
    pyproject = {
        "project": {
            "dependencies": ["numpy"],
            "optional-dependencies": {"cpu": ["llvmlite"], "gpu": ["vllm"], "dev": ["ruff"]},
        },
        "tool": {
            "vllm_av": {
                "lock": {
                    "extras": ["cpu", "dev"],
                    "without-dependencies": ["Data_Only==1"],
                    "never": ["Torch_Vision"],
                }
            }
        },
    }
    assert wanted(pyproject) == Wanted(
        ("numpy", "llvmlite", "ruff"), ("Data_Only==1",), frozenset({"torch-vision"})
    )


def test_the_lock_is_sorted_and_lacks_what_is_never_wanted() -> None:
    want = Wanted((), ("Data_Only==1",), frozenset({"torchvision"}))
    text = lock_text(want, {"Zeta": "2", "torchvision": "1", "a_b": "3+cpu"})
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == ["a-b==3+cpu", "data-only==1", "zeta==2"]


def test_the_committed_lock_holds_what_pyproject_names() -> None:
    pins = read_pins(ROOT / "requirements.lock")
    wants = wanted(PYPROJECT)
    for requirement in (*wants.requirements, *wants.alone):
        name = normal(requirement.partition("=")[0].partition(">")[0])
        assert name in pins, requirement
        exact = requirement.partition("==")[2]
        assert not exact or pins[name] == exact
    assert not wants.never & set(pins)


def test_the_lock_never_holds_torchs_companions() -> None:
    assert set(COMPANIONS) <= wanted(PYPROJECT).never


def test_the_committed_lock_pins_the_cpu_build_of_torch() -> None:
    assert read_pins(ROOT / "requirements.lock")["torch"] == "2.13.0+cpu"


def test_the_locks_file_names_no_host() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert "--" not in text.replace("--no-deps", "")
