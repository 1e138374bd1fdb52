"""The hook, a cache folder of this run's own, and the comparison with Triton's interpreter."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

os.environ["VLLM_LOGGING_LEVEL"] = "WARNING"
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from tests.kernels import check
from vllm_av.cpu import install
from vllm_av.cpu.launcher import Launcher
from vllm_av.errors import Code, KernelError

Both = Callable[..., None]


@pytest.fixture(scope="session")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module", autouse=True)
def _hook(_cache: str) -> Iterator[None]:
    """Kernels compile afresh: a cache of another run would hide what this compiler does.

    Not for the whole session: the engine's tests may follow in this process, and take the user's.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AV_CACHE", _cache)
        torch.set_num_threads(1)
        install()
        yield


@pytest.fixture
def both() -> Both:
    """Launch a kernel compiled and interpreted on the same arguments; both must agree.

    The tensors hold the compiled kernel's results afterwards. A kernel that was not compiled fails.
    """

    def launch(kernel: Any, grid: Any, *args: Any, **kwargs: Any) -> None:
        report = check.Report()
        launcher = Launcher(kernel)
        check.compare(launcher, grid, args, kwargs, report)
        assert not launcher.refused, "the kernel was interpreted both times"
        assert report.differences == []

    return launch


@pytest.fixture
def compared() -> Iterator[check.Report]:
    """Every launch in the test is compared; all must agree, and be compiled."""
    with check.compared() as report:
        yield report
    assert report.launches, "the test launched nothing"
    assert dict(report.interpreted) == {}
    assert report.differences == []


@pytest.fixture
def refusal() -> Callable[..., str]:
    """Why a kernel is not compiled for these arguments."""

    def reason(kernel: Any, *args: Any) -> str:
        launcher = Launcher(kernel)
        with pytest.raises(KernelError) as error:
            launcher._made(launcher._bind(args, {}))
        assert error.value.code == Code.KERNEL_UNSUPPORTED
        return str(error.value)

    return reason


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
