"""Groups of layers, in words and as vLLM's options name them.

Rule: what the selector is asked about can be named by the user, nothing else.
"""

from vllm_av.preflight.facts import LayerGroup, LayerKind, Setup

KINDS = {
    LayerKind.FULL: "full_attention",
    LayerKind.CHUNKED: "full_attention",
    LayerKind.SLIDING: "sliding_window",
    LayerKind.MLA: "mla_attention",
    LayerKind.MLA_SPARSE: "mla_attention",
}
"""What vLLM's selector is asked about -> its name in ``backend_per_kind``."""

PER_KIND = "attention-config.backend_per_kind"

UNTOLD = "none"
"""The source of an answer about a backend that the table lacks."""


def describe(group: LayerGroup) -> str:
    """``28 layers of full attention``, ``43 layers of the model's own``."""
    layers = f"{group.count} layer{'' if group.count == 1 else 's'}"
    if group.kind is LayerKind.OTHER:
        own = f" ({group.backend})" if group.backend else ""
        return f"{layers} of the model's own{own}"
    return f"{layers} of {group.kind}"


def selected(group: LayerGroup) -> bool:
    """Whether the selector, and with it the user, has a say about the backend."""
    return group.backend is None and group.kind in KINDS


def named(setup: Setup, group: LayerGroup) -> str | None:
    """The backend that the user names for these layers."""
    if not selected(group):
        return None
    return setup.backend_per_kind.get(KINDS[group.kind], setup.attention_backend)


def place(setup: Setup) -> str:
    """Where the user names backends."""
    default = setup.place("attention_config", "--attention-config")
    if setup.backend_per_kind:
        return setup.place("attention_config.backend_per_kind", default)
    return setup.place("attention_backend", setup.place("attention_config.backend", default))


def option(setup: Setup) -> str:
    """The option for all layers, where the user named it, or the shorter of the two."""
    config = setup.features.get("attention_config") or {}
    return "attention-config.backend" if "backend" in config else "attention-backend"
