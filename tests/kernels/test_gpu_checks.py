"""The checks that tests/gpu makes on a GPU, through the CPU engine: so they are known to run."""

from collections.abc import Callable

import pytest
import torch

from tests.gpu.checks import CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_through_the_cpu_engine(check: Callable[[torch.device], str]) -> None:
    assert check(torch.device("cpu"))
