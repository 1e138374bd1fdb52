"""The checks of this folder on a GPU; tests/kernels runs them through the CPU engine."""

from collections.abc import Callable

import pytest
import torch

from tests.gpu.checks import CHECKS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here"),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_on_the_gpu(check: Callable[[torch.device], str]) -> None:
    assert check(torch.device("cuda"))
