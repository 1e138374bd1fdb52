"""Tells vLLM every reason against adaptive verification at once, at vLLM's seam for that.

vLLM asks whenever it makes a config, again when a worker starts, and once more when the target's
layers are built and no weight is loaded. What it finds by itself comes with the question.

Rules:

* A reason refuses the engine, or with ``"on_unsupported": "fixed_k"`` switches adaptive
  verification off before anything depends on it: hash, backends, graphs. A mistake in the block is
  no reason to run without it, and refuses in any case.
* The copies of a config that drafts are loaded with are not judged: their layers are others.
"""

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vllm_av.seams import cost_table, note

if TYPE_CHECKING:
    from vllm_av.preflight.capabilities import Capabilities
    from vllm_av.preflight.facts import Gpu
    from vllm_av.preflight.reasons import Reason

_judged: "weakref.ref[Any] | None" = None
"""The speculative config of the config that was judged last; copies for drafts share it."""


def require_free() -> None:
    """See that nobody else checks; :func:`connect` will then succeed.

    Raises:
        ImportError: this vLLM has no such seam.
        ValueError: another plugin has registered a checker.
    """
    from vllm.config import adaptive_verification_check as seam

    if seam._checker not in (None, check):
        raise ValueError(f"{seam._checker!r} checks adaptive verification already")


def connect() -> None:
    """Register with the patched vLLM.

    Raises:
        ImportError: this vLLM has no such seam.
        ValueError: another plugin has registered a checker.
    """
    from vllm.config.adaptive_verification_check import register_adaptive_verification_checker

    register_adaptive_verification_checker(check)


def check(vllm_config: Any, blockers: list[Any], layers: Mapping[str, Any] | None) -> list[Any]:
    """The checker.

    Args:
        vllm_config: vLLM's ``VllmConfig``, with adaptive verification.
        blockers: what vLLM has found.
        layers: the target's attention layers by name; None before it is built.

    Returns:
        Nothing: what refuses is raised.

    Raises:
        RefusedError: ``AV-CHECK-REFUSED``: adaptive verification cannot run so.
        CostTableError: it can, but for the file that was to say what steps cost.
    """
    # Not at the head: vLLM loads this module in every process, for everybody.
    from vllm_av.errors import Code
    from vllm_av.preflight import engine
    from vllm_av.preflight.reasons import Weight

    spec = vllm_config.speculative_config
    found = [engine.reason_of(blocker) for blocker in blockers]
    if layers is None and not _is_copy(vllm_config):
        found = _judged_by_rules(vllm_config, blockers) or found
    elif layers is not None:
        found += _judged_costs(vllm_config, layers)
    refusals = [reason for reason in found if reason.weight is Weight.REFUSAL]
    if not refusals:
        _tell(found)
        return []
    fixed = (spec.adaptive_verification_config or {}).get("on_unsupported") == "fixed_k"
    if fixed and not any(isinstance(reason.code, Code) for reason in refusals):
        _switch_off(spec, refusals)
        return []
    _refuse(refusals)
    return []


def _judged_by_rules(vllm_config: Any, blockers: list[Any]) -> "list[Reason]":
    """All reasons; none where they cannot be found, since vLLM checks what it needs by itself."""
    from vllm.logger import init_logger

    from vllm_av.preflight import engine

    try:
        gpu = device(vllm_config)
        costs = cost_table.at_start(vllm_config, gpu)
        return engine.reasons_of(vllm_config, blockers, gpu, _answers(vllm_config, gpu), costs)
    except Exception:
        init_logger(f"vllm.{__name__}").exception(
            "vllm_av cannot judge this config; vLLM's own check of adaptive verification holds"
        )
        return []


def _judged_costs(vllm_config: Any, layers: Mapping[str, Any]) -> "list[Reason]":
    """A cost table that does not fit, as far as it shows before the weights are read."""
    from vllm_av.preflight.rules.cost_table import about

    spec = vllm_config.speculative_config
    costs = cost_table.at_layers(vllm_config, device(vllm_config), layers)
    return list(about(spec.adaptive_verification_config, costs, "vLLM's config"))


def _is_copy(vllm_config: Any) -> bool:
    """Whether this config is one for the draft, or was judged in this process."""
    global _judged
    spec = vllm_config.speculative_config
    if vllm_config.model_config is None or vllm_config.model_config is spec.draft_model_config:
        return True
    if _judged is not None and _judged() is spec:
        return True
    _judged = weakref.ref(spec)
    return False


def device(vllm_config: Any) -> "Gpu | None":
    """The device of this process; None where it is no worker, and Ray places those."""
    from vllm.platforms import current_platform

    from vllm_av.preflight.engine import executor
    from vllm_av.preflight.facts import Gpu

    if current_platform.is_cpu():
        return Gpu("cpu", "cpu", 0, 0)
    if executor(vllm_config) == "ray" and not is_worker():
        return None
    if current_platform.is_xpu():
        return Gpu("xpu", "xpu", 0, 0)
    if not current_platform.is_cuda_alike():
        return None
    platform = "cuda" if current_platform.is_cuda() else "rocm"
    capability = current_platform.get_device_capability()
    if capability is None:
        return None
    return Gpu(current_platform.get_device_name(), platform, capability.major, capability.minor)


def is_worker() -> bool:
    """A worker has joined its group before it asks."""
    import torch

    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def _answers(vllm_config: Any, gpu: "Gpu | None") -> "Capabilities | None":
    if gpu is None:
        return None
    from vllm_av.preflight.backends.classes import ClassCapabilities

    return ClassCapabilities(vllm_config)


def _tell(found: "list[Reason]") -> None:
    """What costs something, and what is decided later; once, where the config is made."""
    if is_worker():
        return
    from vllm.logger import init_logger

    log = init_logger(f"vllm.{__name__}")
    for reason in found:
        log.info_once("Adaptive verification: %s", str(reason), scope="global")


def _switch_off(spec: Any, refusals: "list[Reason]") -> None:
    from vllm.logger import init_logger

    spec.enable_adaptive_verification = False
    spec.adaptive_verification_config = None
    init_logger(f"vllm.{__name__}").warning_once(
        "Adaptive verification is off, and %s drafts are verified at every step, since "
        "on_unsupported is fixed_k: %s",
        spec.num_speculative_tokens,
        "; ".join(map(str, refusals)),
        scope="global",
    )


def _refuse(refusals: "list[Reason]") -> None:
    from vllm_av.errors import Code, CostTableError, RefusedError

    with note.left_by_errors():
        if len(refusals) == 1 and str(refusals[0].code).startswith("AV-COST-TABLE-"):
            # Adaptive verification can run here: it is a file that is the wrong one.
            reason = refusals[0]
            raise CostTableError(Code(reason.code), reason.asked, reason.found, str(reason.fix))
        raise RefusedError(*map(str, refusals))
