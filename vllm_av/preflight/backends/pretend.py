"""Make the vLLM of this process believe that it runs on a GPU that is not here.

For a process that asks vLLM's classes and config what they would do on such a GPU; nothing can be
computed in it. What is replaced: the platform, by a subclass of vLLM's own that answers what a
driver would; and the compiled modules that this build of vLLM lacks, by empty ones, so that what
is asked is what the wheel for that GPU would say: FlashAttention 2, 3 and 4, FlashMLA and DeepGEMM
are in it. FlashInfer's kernels count as there where its package is; no server is asked for them.

Rule: only in a process of its own, before anything of vLLM's but ``vllm.platforms`` was imported.
"""

import sys
from collections.abc import Sequence
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

from vllm_av.preflight.backends.gpus import rocm_target
from vllm_av.preflight.facts import Gpu
from vllm_av.triton_shim.target import vllm_is_cpu

COMPILED = (
    "vllm._C_stable_libtorch",
    "vllm._moe_C_stable_libtorch",
    "vllm._flashmla_C",
    "vllm._flashmla_extension_C",
    "vllm.third_party.deep_gemm",
    "vllm.third_party.flashmla",
    "vllm.vllm_flash_attn._vllm_fa2_C",
    "vllm.vllm_flash_attn._vllm_fa3_C",
)
"""What vLLM's wheel for CUDA holds, and its build for the CPU does not."""

MEMORY = 80 << 30
"""Of a device, in bytes: vLLM's defaults hang on whether it has 70 GiB."""


UNITS = 132
"""Multiprocessors of a device; no answer hangs on it."""


def pretend(device: Gpu, memory: int = MEMORY, count: int = 8) -> None:
    """Let vLLM take this process' machine for one with such devices.

    Args:
        device: of which kind.
        memory: of each, in bytes.
        count: how many.

    Raises:
        ImportError: where this build of vLLM cannot be made to believe it.
    """
    import torch
    import vllm.platforms as platforms

    # A few modules ask for the device, and CUTLASS's MLA takes memory there, while imported.
    torch.cuda.get_device_properties = lambda *_: _Properties(device, memory)
    torch.empty = partial(_empty, torch.empty)
    if device.platform == "cuda":
        _stand_in(COMPILED)
        platforms._current_platform = _cuda(device, memory, count)
        _take_kernels_for_granted()
        if vllm_is_cpu():
            _take_python_for_granted()
    elif device.platform == "rocm":
        platforms._current_platform = _rocm(device, memory, count)
    elif device.platform == "xpu":
        _stand_in(("vllm_xpu_kernels",))
        platforms._current_platform = _xpu(memory, count)
    else:
        from vllm.platforms.cpu import CpuPlatform

        platforms._current_platform = CpuPlatform()


def _cuda(device: Gpu, memory: int, count: int) -> Any:
    from vllm.platforms.cuda import NonNvmlCudaPlatform

    class Pretended(NonNvmlCudaPlatform):
        """vLLM's platform for CUDA without NVML."""

        @classmethod
        def get_cuda_runtime_major(cls) -> int:
            return 13

        @classmethod
        def is_fully_connected(cls, physical_device_ids: list[int]) -> bool:
            return True

    _answer(Pretended, device, memory, count)
    return Pretended()


def _rocm(device: Gpu, memory: int, count: int) -> Any:
    from vllm.platforms.rocm import RocmPlatform

    class Pretended(RocmPlatform):
        """vLLM's platform for ROCm."""

    _answer(Pretended, device, memory, count)
    import vllm.platforms as platforms

    platforms._current_platform = found = Pretended()
    from vllm import _aiter_ops

    # AMD's images of vLLM bring the library
    _aiter_ops.IS_AITER_FOUND = True
    return found


def _xpu(memory: int, count: int) -> Any:
    from vllm.platforms.xpu import XPUPlatform

    class Pretended(XPUPlatform):
        """vLLM's platform for Intel's GPUs."""

    _answer(Pretended, Gpu("xpu", "xpu", 0, 0), memory, count)
    Pretended.get_device_capability = classmethod(lambda cls, device_id=0: None)
    return Pretended()


class _Properties:
    """Of ``torch.cuda.get_device_properties``, what vLLM reads."""

    def __init__(self, device: Gpu, memory: int) -> None:
        self.name = f"pretended {device.name}"
        self.major, self.minor = device.major, device.minor
        self.total_memory = memory
        self.multi_processor_count = UNITS
        if device.platform == "rocm":
            self.gcnArchName = rocm_target(device)


def _answer(platform: Any, device: Gpu, memory: int, count: int) -> None:
    """What a driver would have said."""
    from vllm.platforms.interface import DeviceCapability

    capability = DeviceCapability(device.major, device.minor)
    answers = {
        "get_device_capability": capability,
        "get_device_name": f"pretended {device.name}",  # as in torch's properties
        "get_device_total_memory": memory,
        "device_count": count,
        "num_compute_units": UNITS,
        "is_integrated_gpu": False,
    }
    for name, value in answers.items():
        setattr(platform, name, classmethod(lambda cls, *_, _value=value, **__: _value))


def _take_kernels_for_granted() -> None:
    """What vLLM would ask of compiled operators, a compiler's path, or a server."""
    import vllm._custom_ops as ops

    for name in dir(ops):
        if "supports" in name or "supported" in name:
            setattr(ops, name, lambda *_, **__: True)
    import vllm.utils.flashinfer as flashinfer

    flashinfer.has_nvidia_artifactory = lambda: True
    if flashinfer.importlib.util.find_spec("flashinfer") is not None:
        flashinfer.has_flashinfer = lambda: True


def _take_python_for_granted() -> None:
    """FlashAttention 4 and DeepGEMM, whose Python a build for the CPU may hold without the rest."""
    for name in ("vllm.vllm_flash_attn.cute", "vllm.vllm_flash_attn.cute.interface"):
        sys.modules[name] = module_from_spec(ModuleSpec(name, _Finder(()), is_package=True))
        _Finder(()).exec_module(sys.modules[name])
    import vllm.vllm_flash_attn.flash_attn_interface as interface

    interface.FA4_AVAILABLE, interface.FA4_UNAVAILABLE_REASON = True, None
    import vllm.utils.import_utils as imports

    imports.has_deep_gemm = lambda: True


def _empty(real: Any, *sizes: Any, device: Any = None, **more: Any) -> Any:
    """``torch.empty`` without memory, where it is asked for some on a GPU."""
    return real(*sizes, device="meta" if str(device).startswith("cuda") else device, **more)


def _stand_in(names: Sequence[str]) -> None:
    sys.meta_path.append(_Finder(tuple(names)))


class _Finder(MetaPathFinder, Loader):
    """Finds the named modules, and all below them, where no one else has. They hold nothing."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A package, so that modules below it are asked for here too."""
        below = any(fullname == name or fullname.startswith(f"{name}.") for name in self.names)
        return ModuleSpec(fullname, self, is_package=True) if below else None

    def exec_module(self, module: ModuleType) -> None:
        """Give it whatever is imported from it: a class that cannot be used."""

        def missing(name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (_Nothing,), {})

        module.__getattr__ = missing  # type: ignore[method-assign]


class _Nothing:
    """What a compiled module would have held."""

    def __init__(self, *_: object, **__: object) -> None:
        raise RuntimeError("nothing can be computed on a GPU that is only pretended")
