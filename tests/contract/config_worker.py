"""A process in which vLLM settles command lines as on a GPU that is not there.

Run by the Python of each supported vLLM: a JSON question on standard input, a JSON answer on
standard output (:mod:`tests.contract.configs` asks). Everything that is decided is decided by
vLLM's own code; only what a driver or a compiled extension would say is made up.

Rule: no file is written outside ``VLLM_CACHE_ROOT``, and no weight is needed.
"""

import json
import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar


def pretend(major: int, minor: int) -> None:
    """Make vLLM believe in a CUDA GPU of this capability; before anything of it is imported."""
    sys.modules["vllm._C_stable_libtorch"] = types.ModuleType("vllm._C_stable_libtorch")
    sys.modules["vllm.vllm_flash_attn"] = _Extension("vllm.vllm_flash_attn")
    sys.modules["vllm.vllm_flash_attn.flash_attn_interface"] = _Extension("flash_attn_interface")
    import vllm.platforms as platforms
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.platforms.interface import DeviceCapability

    class Pretended(NonNvmlCudaPlatform):
        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            return DeviceCapability(major, minor)

        @classmethod
        def has_device_capability(cls, capability: Any, device_id: int = 0) -> bool:
            least = capability if isinstance(capability, tuple) else divmod(capability, 10)
            return (major, minor) >= tuple(least)

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return f"NVIDIA sm{major}{minor}"

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return 80 << 30

        @classmethod
        def get_cuda_runtime_major(cls) -> int:
            return 13

        @classmethod
        def num_compute_units(cls, device_id: int = 0) -> int:
            return 132

        @classmethod
        def is_integrated_gpu(cls, device_id: int = 0) -> bool:
            return False

        @classmethod
        def device_count(cls) -> int:
            return 8

    platforms._current_platform = Pretended()
    import vllm._custom_ops as ops

    for name in dir(ops):
        if "supports" in name or "supported" in name:
            setattr(ops, name, lambda *args, **options: True)
    from vllm.model_executor.models import registry

    # A child process would see the machine as it is.
    registry._run_in_subprocess = lambda function: function()
    registry._LazyRegisteredModel._save_modelinfo_to_cache = lambda *args: None


class _Extension(types.ModuleType):
    """Any name is a function that says that all is supported, as FlashAttention's helpers do."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **options: None if "reason" in name else True


def settle(argv: list[str], environ: dict[str, str]) -> Any:
    """vLLM's config for ``vllm serve`` with these arguments.

    Raises:
        ValueError: vLLM refuses it.
    """
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    with _variables(environ):
        parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
        engine = EngineArgs.from_cli_args(parser.parse_args(argv))
        return engine.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)


def settled(config: Any) -> dict[str, Any]:
    """Of a config what a check has to know before."""
    speculative = config.speculative_config
    return {
        "runner": "v2" if config.use_v2_model_runner else "v1",
        "cudagraph_mode": config.compilation_config.cudagraph_mode.name,
        "max_capture_size": config.compilation_config.max_cudagraph_capture_size or 0,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "method": speculative and speculative.method,
        "num_speculative_tokens": speculative and speculative.num_speculative_tokens,
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "vocab_size": config.model_config.get_vocab_size(),
        "adaptive": bool(speculative and speculative.enable_adaptive_verification),
    }


def built(config: Any, backends: dict[str, str]) -> None:
    """What vLLM checks after a target is built, with layers of these backends.

    Args:
        backends: name of a layer -> name in one of vLLM's enums.

    Raises:
        ValueError: vLLM refuses them.
    """
    from types import SimpleNamespace

    from vllm.config import set_current_vllm_config
    from vllm.v1.attention.backends import registry
    from vllm.v1.worker.gpu.spec_decode import adaptive_verification

    def group(layer: str, name: str) -> Any:
        enums = (registry.AttentionBackendEnum, registry.MambaAttentionBackendEnum)
        kind = next(enum[name].get_class() for enum in enums if name in enum.__members__)
        builder = kind.get_builder_cls()
        spec = SimpleNamespace(head_size=128, num_kv_heads=8, block_size=16, dtype=None)
        return SimpleNamespace(
            backend=kind,
            layer_names=[layer],
            kv_cache_spec=spec,
            get_metadata_builder=lambda index: builder,
        )

    # Where all is well the manager would be built, which needs a runner.
    adaptive_verification.AdaptiveVerificationManager = lambda *args, **options: None
    with set_current_vllm_config(config):
        adaptive_verification.maybe_create_adaptive_verification_manager(
            enable_adaptive_verification=True,
            attn_groups=[[group(layer, name) for layer, name in backends.items()]],
            req_states=SimpleNamespace(
                num_speculative_steps=config.speculative_config.num_speculative_tokens
            ),
            query_start_loc=None,
            num_bonus_tokens=1,
            max_total_logits=1,
            vllm_config=config,
            target_layer_names=set(backends),
        )


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """One command line: what vLLM makes of it, or why it refuses."""
    try:
        config = settle(case["argv"], case["environ"])
        if case["backends"]:
            built(config, case["backends"])
    except (Exception, SystemExit) as error:
        return {"refusal": str(error), "kind": type(error).__name__, "settled": None}
    return {"refusal": None, "kind": None, "settled": settled(config)}


@contextmanager
def _variables(environ: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def main() -> None:
    """Answer the question on standard input."""
    question = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM writes its log to standard output
    pretend(*question["capability"])
    json.dump([answer(case) for case in question["cases"]], answers)
    answers.close()


if __name__ == "__main__":
    main()
