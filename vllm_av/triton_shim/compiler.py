"""The compiler half of the backend: it claims the target ``cpu`` and compiles nothing."""

from types import ModuleType
from typing import NoReturn

from triton.backends.compiler import BaseBackend, GPUTarget, Language

from vllm_av.triton_shim.driver import refuse


class CPUBackend(BaseBackend):
    """Reached only by a launch that :mod:`vllm_av.cpu` does not see."""

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        return bool(target.backend == "cpu")

    def hash(self) -> str:
        return "vllm_av"

    def parse_options(self, options: dict[str, object]) -> NoReturn:
        refuse()

    def add_stages(self, stages: object, options: object, language: Language) -> NoReturn:
        refuse()

    def load_dialects(self, context: object) -> NoReturn:
        refuse()

    def get_module_map(self) -> dict[str, ModuleType]:
        return {}
