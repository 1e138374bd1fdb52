"""A process in which vLLM builds targets without weights and settles drafters.

Run by the Python of each supported vLLM, with a JSON question in the file that is its first
argument and the answer in its second (:mod:`tests.contract.test_models` asks). A model is built on
the device ``meta``, which holds no numbers; its layers then say what they asked the selector for.
Only the backends are stood in for, as there is none for the CPU that takes every kind of layer.

Rule: everything that is told was decided by vLLM's own code.
"""

import importlib.abc
import importlib.machinery
import json
import sys
import types
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar


class _Anything(types.ModuleType):
    """torchvision, which is not installed and which models with a vision tower import."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *args, **kwargs: None})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.partition(".")[0] == "torchvision":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Any:
        return _Anything(spec.name)

    def exec_module(self, module: Any) -> None:
        pass


class _Impl:
    """Of no backend: it is made, and never run."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # beside sizes: ALiBi's slopes, whether as roots, and a cap of the logits
        sqrt = bool(kwargs.get("use_alibi_sqrt"))
        self.handed = (args[4] is not None, sqrt, args[7] is not None) if args else ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return False


def prepare() -> None:
    """Let any layer be made, and any model be inspected in this process."""
    from transformers import AutoConfig, Qwen2Config
    from vllm.config import ModelConfig
    from vllm.model_executor.layers.attention import (
        attention,
        chunked_local_attention,
        mla_attention,
    )
    from vllm.model_executor.models import registry
    from vllm.v1.attention.backends.mla.triton_mla import TritonMLABackend
    from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend

    def backend(*args: Any, use_mla: bool = False, **kwargs: Any) -> Any:
        base = TritonMLABackend if use_mla else TritonAttentionBackend
        return type("Asked", (base,), {"get_impl_cls": staticmethod(lambda: _Impl)})

    for module in (attention, chunked_local_attention, mla_attention):
        module.get_attn_backend = backend
    registry._run_in_subprocess = lambda function: function()
    # Whether images can come is asked of the processor's files, which do not lie beside a config.
    ModelConfig._supports_multimodal_for_mm_prefix = lambda self: True
    # As the code beside that model's weights does.
    AutoConfig.register("mimo", type("MiMoConfig", (Qwen2Config,), {"model_type": "mimo"}))
    sys.meta_path.append(_Finder())


def engine(folder: str, speculative: dict[str, Any] | None = None) -> Any:
    """vLLM's config for a model."""
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(
        model=folder,
        tokenizer=folder,
        skip_tokenizer_init=True,
        load_format="dummy",
        enforce_eager=True,
        enable_prefix_caching=True,
        max_model_len=1024,
        max_num_batched_tokens=2048,
        speculative_config=speculative,
    ).create_engine_config()


def target(folder: str) -> dict[str, Any]:
    """What vLLM takes a model for, and the layers that it builds."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    config = engine(folder)
    model = config.model_config
    # vLLM asks this early where no --max-num-batched-tokens is given, and remembers the answer;
    # 0.32 would else ask the text model's config, which does not say it.
    assert isinstance(model.is_mm_prefix_lm, bool)
    with set_current_vllm_config(config):
        _distributed()
        with set_default_torch_dtype(model.dtype), torch.device("meta"):
            initialize_model(config)
    layers = config.compilation_config.static_forward_context.values()
    counts: dict[tuple[Any, ...], int] = {}
    for layer in layers:
        for key in _kind(layer):
            counts[key] = counts.get(key, 0) + 1
    return {
        "architecture": model.architectures[0],
        "vocab_size": model.get_vocab_size(),
        "dtype": str(model.dtype).removeprefix("torch."),
        "experts": model.get_num_experts(),
        "layers": sorted([*key, count] for key, count in counts.items()),
        "config": model.hf_config.to_dict(),
    }


def _kind(layer: Any) -> list[tuple[Any, ...]]:
    """One for a layer that keeps something between steps, else none."""
    bases = {base.__name__ for base in type(layer).__mro__}
    if "MambaBase" in bases:
        return [(layer.mamba_type.name,)]
    if "MLAAttention" in bases:
        kind = "MLA_SPARSE" if layer.use_sparse else "MLA"
        return [(kind, layer.head_size, layer.num_heads, 1, *[False] * 5)]
    if "Attention" in bases:
        kind = "FULL" if layer.sliding_window is None else "SLIDING"
        if "ChunkedLocalAttention" in bases:
            kind = "CHUNKED"
        sizes = (layer.head_size, layer.num_heads, layer.num_kv_heads)
        handed = getattr(layer.impl, "handed", [False] * 3)
        return [(kind, *sizes, layer.has_sink, layer.use_mm_prefix, *handed)]
    return [("INDEXER",)] if "DeepseekV32IndexerCache" in bases else []


def _distributed() -> None:
    """Groups of one process each, once."""
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.distributed import parallel_state as state

    if state.model_parallel_is_initialized():
        return
    with TemporaryDirectory() as folder:
        init_distributed_environment(1, 0, f"file://{folder}/store", 0, "gloo")
        initialize_model_parallel(1)
    if state._EP is None:  # the first model had no experts
        state._EP = state._TP


def draft(folder: str, speculative: dict[str, Any]) -> dict[str, Any]:
    """What vLLM settles about a drafter."""
    config = engine(folder, speculative).speculative_config
    model = config.draft_model_config
    return {
        "method": config.method,
        "num_speculative_tokens": config.num_speculative_tokens,
        "architecture": model.architectures[0],
        "many_modules": bool(config.use_multi_module_mtp()),
        "gemma4": bool(config.use_gemma4_mtp()),
        "parallel": bool(config.parallel_drafting),
        "draft_vocab_size": getattr(model.hf_config, "draft_vocab_size", None)
        or model.get_vocab_size(),
    }


def _told(function: Any, *args: Any) -> dict[str, Any]:
    try:
        result: dict[str, Any] = function(*args)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return result


if __name__ == "__main__":
    asked = json.loads(Path(sys.argv[1]).read_text())
    prepare()
    answer = {
        "targets": {folder: _told(target, folder) for folder in asked["targets"]},
        "drafts": [_told(draft, *each) for each in asked["drafts"]],
    }
    Path(sys.argv[2]).write_text(json.dumps(answer, default=str))
