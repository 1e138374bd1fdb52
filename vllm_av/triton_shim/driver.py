"""The driver half of the backend: active or not, and what machine this is.

Rule: questions are answered, work is refused. A launch that the hook does not see asks the driver
first and ends at the compiler, in one clear line.
"""

from typing import Any, NoReturn

from triton.backends.driver import DriverBase

from vllm_av.triton_shim.target import vllm_is_cpu


def refuse() -> NoReturn:
    """A Triton launch came this far: nobody compiles it.

    Raises:
        KernelError: ``AV-KERNEL-NO-HOOK``, always.
    """
    from vllm_av.errors import Code, KernelError

    raise KernelError(
        Code.KERNEL_NO_HOOK,
        given="a Triton kernel was launched on the CPU without vllm_av's compiler",
        allowed="it is loaded as vLLM's plugin `vllm_av`",
        fix="add vllm_av to VLLM_PLUGINS, or unset that variable",
    )


class CPUDriver(DriverBase):
    """Active where vLLM's platform is the CPU and no GPU's driver is active."""

    @classmethod
    def is_active(cls) -> bool:
        if not vllm_is_cpu():
            return False
        # Only once Triton has found them all; while it does, nobody asks.
        from triton.backends import backends

        others = (backend.driver for backend in backends.values() if backend.driver is not cls)
        return not any(driver.is_active() for driver in others)

    def map_python_to_cpp_type(self, ty: str) -> NoReturn:
        refuse()

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cpu", 0, 1)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_benchmarker(self) -> NoReturn:
        refuse()
