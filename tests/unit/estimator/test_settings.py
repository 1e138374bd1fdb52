"""The settings, and that reading them loads nothing heavy."""

import subprocess
import sys

import pytest

from vllm_av.estimator.settings import EstimatorSettings


def test_the_defaults_are_those_of_vllm() -> None:
    """v1/worker/gpu/spec_decode/acceptance_estimator.py; tests/kernels compares with the file."""
    assert EstimatorSettings() == EstimatorSettings(100, 50.0, 1e-3, 0.5, -0.2, 40.0)


def test_one_intercept_serves_every_position() -> None:
    assert EstimatorSettings().intercepts(3) == (-0.2, -0.2, -0.2)
    assert EstimatorSettings(initial_intercepts=(1.0, 2.0)).intercepts(2) == (1.0, 2.0)


def test_a_wrong_number_of_intercepts_is_refused() -> None:
    with pytest.raises(ValueError, match="2 initial intercepts for 3 draft positions"):
        EstimatorSettings(initial_intercepts=(1.0, 2.0)).intercepts(3)


def test_reading_the_settings_imports_no_torch() -> None:
    code = "import sys, vllm_av.estimator.settings; print({'torch', 'triton'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
