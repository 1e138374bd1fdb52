"""The steps of ``.venv-033``: made once, made anew when ``.venv`` changes, never over another's."""

import shutil
import sys
from pathlib import Path

import pytest

from ci.hybrid import steps
from ci.hybrid.steps import STEPS
from ci.setup.place import Place
from ci.setup.run import bring
from ci.setup.steps import Step
from vllm_av.errors import Code, SetupError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def there(there: Place) -> Place:
    """With a Python that can make environments, and the pin of the wheel."""
    (there.root / ".venv/bin/python").symlink_to(sys.executable)
    folder = there.root / "patches" / steps.VERSION
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "patches" / steps.VERSION / "wheel.toml", folder)
    return there


@pytest.fixture
def first_two(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Step, ...]:
    """The steps that make it, from a wheel that lies here."""
    monkeypatch.setattr(steps, "_FETCH", f"print({str(wheel)!r})")
    return STEPS[:2]


def test_it_is_made_once(
    there: Place, first_two: tuple[Step, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert bring(there, first_two) == 0
    assert (there.site / "vllm/__init__.py").read_text() == "0.33"
    assert (there.site / "numpy/__init__.py").read_text() == "numpy"
    assert {path.name for path in there.site.glob("vllm*")} == {
        *("vllm", "vllm-0.33.0+cpu.dist-info", "vllm_av-0.1.0.dist-info"),
    }
    capsys.readouterr()
    assert bring(there, first_two) == 0
    assert capsys.readouterr() == ("", "")


def test_a_base_that_was_set_up_anew_makes_it_anew(
    there: Place, first_two: tuple[Step, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    bring(there, first_two)
    (there.site / "leftover").touch()
    (there.root / ".venv/.setup/imports").write_text("another key")
    capsys.readouterr()
    assert bring(there, first_two) == 0
    assert "[1/2] environment: done" in capsys.readouterr().out
    assert not (there.site / "leftover").exists()
    assert (there.site / "vllm").is_dir()


def test_a_killed_one_is_made_whole(there: Place, first_two: tuple[Step, ...]) -> None:
    bring(there, first_two)
    (there.stamps / "vllm").unlink()
    (there.site / "vllm/__init__.py").unlink()
    (there.site / "vllm-0.33.0+cpu.dist-info/RECORD").unlink()
    assert bring(there, first_two) == 0
    assert (there.site / "vllm/__init__.py").read_text() == "0.33"
    assert (there.site / "vllm-0.33.0+cpu.dist-info/RECORD").is_file()


def test_an_environment_of_somebody_else_is_left_alone(
    there: Place, first_two: tuple[Step, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    there.venv.mkdir()
    (there.venv / "thesis.tex").touch()
    assert bring(there, first_two) == 2
    assert f"[AV-SETUP-VENV] {there.venv} is there, " in capsys.readouterr().err
    assert (there.venv / "thesis.tex").exists()


def test_without_its_base_it_says_what_to_run(
    there: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    (there.root / ".venv/.setup/imports").unlink()
    assert bring(there, STEPS) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: [AV-SETUP-VENV] {there.root / '.venv'} is not set up; ")
    assert "run: make setup" in error


def test_a_wheel_that_cannot_be_had_is_one_line(
    there: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = "raise SystemExit('error: [AV-PATCH-WHEEL] no index serves it')"
    monkeypatch.setattr(steps, "_FETCH", refuse)
    assert bring(there, STEPS[:2]) == 2
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith("error: [AV-SETUP-INSTALL] the wheel of vLLM 0.33.0 cannot be had (")
    assert "[AV-PATCH-WHEEL] no index serves it" in line
    assert "build/setup-033/vllm.log" in line


def test_a_vllm_that_does_not_import_is_one_line(
    there: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.unit.setup.test_steps import Recorded

    there.logs.mkdir(parents=True)
    runner = Recorded(there, (1, "AttributeError: no operator of that name"))
    with pytest.raises(SetupError, match="no operator of that name") as caught:
        steps._imports(there, runner)
    assert caught.value.code is Code.SETUP_IMPORT
