"""A target as vLLM builds it, without weights and on a GPU that is not there.

For :mod:`tests.contract.config_worker`. Each layer asks vLLM's own selector; the class that it is
given is real but for the part that computes.

Rule: only a process that pretends a GPU may import this.
"""

import sys
from collections import Counter
from types import SimpleNamespace
from typing import Any

import torch
import torch._ops

from tests.contract import model_worker


def prepare() -> None:
    """Let any layer be made, and any model be inspected in this process."""
    from transformers import AutoConfig, Qwen2Config
    from vllm.config import ModelConfig
    from vllm.model_executor.layers.attention import (
        attention,
        chunked_local_attention,
        mla_attention,
    )
    from vllm.v1.worker.gpu.spec_decode import adaptive_verification

    _operators()
    torch.cuda._lazy_init = lambda: None
    torch.cuda.current_device = torch.accelerator.current_device_index = lambda: 0
    torch.accelerator.empty_cache = lambda: None
    torch.cuda.Stream = torch.cuda.Event = _Nothing
    for module in (attention, chunked_local_attention, mla_attention):
        module.get_attn_backend = _without_impl(module.get_attn_backend)
    # Whether images can come is asked of the processor's files, which do not lie beside a config.
    ModelConfig._supports_multimodal_for_mm_prefix = lambda self: True
    # As the code beside that model's weights does.
    AutoConfig.register("mimo", type("MiMoConfig", (Qwen2Config,), {"model_type": "mimo"}))
    sys.meta_path.append(model_worker._Finder())
    # Where a layer will do, the manager would be built, which needs a runner.
    adaptive_verification.AdaptiveVerificationManager = lambda *args, **options: None


def build(config: Any) -> None:
    """Build the target of a config, which vLLM then checks.

    Raises:
        ValueError: vLLM refuses its layers.
    """
    from vllm import platforms
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype
    from vllm.v1.worker.gpu.spec_decode.target_check import check_target_layers
    from vllm.v1.worker.workspace import init_workspace_manager

    model = config.model_config
    # vLLM asks this early where no --max-num-batched-tokens is given, and remembers the answer.
    assert isinstance(model.is_mm_prefix_lm, bool)
    with set_current_vllm_config(config):
        model_worker._distributed()
        init_workspace_manager(torch.device("meta"))
        with set_default_torch_dtype(model.dtype), torch.device("meta"):
            platforms.current_platform.device_type = "meta"
            initialize_model(config)
        # As the loader does, before it reads a weight.
        check_target_layers(config, model)


def layers(config: Any) -> list[tuple[str, str, int]]:
    """Backend, what the release says of it, and how many layers have it."""
    from vllm.config import set_current_vllm_config

    found: Counter[tuple[str, str]] = Counter()
    with set_current_vllm_config(config):
        for name, layer in config.compilation_config.static_forward_context.items():
            spec = getattr(layer, "get_kv_cache_spec", lambda config: None)(config)
            if spec is not None:
                backend = layer.get_attn_backend()
                found[backend.get_name(), _judged(config, name, backend, spec)] += 1
    return [(*key, count) for key, count in sorted(found.items())]


def _judged(config: Any, name: str, backend: Any, spec: Any) -> str:
    """What vLLM, as it was released, says of one layer once the weights are there."""
    from vllm.v1.worker.gpu.spec_decode import adaptive_verification

    group = SimpleNamespace(
        backend=backend,
        layer_names=[name],
        kv_cache_spec=spec,
        get_metadata_builder=lambda index: backend.get_builder_cls(),
    )
    drafts = config.speculative_config.num_speculative_tokens
    try:
        adaptive_verification.maybe_create_adaptive_verification_manager(
            enable_adaptive_verification=True,
            attn_groups=[[group]],
            req_states=SimpleNamespace(num_speculative_steps=drafts, device=None),
            query_start_loc=None,
            num_bonus_tokens=1,
            max_total_logits=1,
            vllm_config=config,
        )
    except ValueError as error:
        return str(error)
    return ""


def _without_impl(selector: Any) -> Any:
    def selected(*args: Any, **options: Any) -> Any:
        backend = selector(*args, **options)
        impl = {"get_impl_cls": staticmethod(lambda: model_worker._Impl)}
        return type(backend.__name__, (backend,), impl)

    return selected


class _Nothing:
    """A stream, or an event on one."""

    def __init__(self, *args: Any, **options: Any) -> None:
        pass


def _operators() -> None:
    """Compiled operators are bound while layers are made, and not run."""
    real = torch._ops._OpNamespace.__getattr__

    def bound(self: Any, name: str) -> Any:
        try:
            return real(self, name)
        except AttributeError:
            if name.startswith("__") or self.name not in ("_C", "_moe_C", "vllm"):
                raise
            return model_worker._Impl()

    torch._ops._OpNamespace.__getattr__ = bound
