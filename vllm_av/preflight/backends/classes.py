"""Answers from vLLM's own classes, asked in this process.

In an engine that is the real platform and the real config; in a process that only asks it is a
pretended platform (:mod:`pretend`) and a stand-in for the config (:mod:`standin`). Which backends
are tried, whether each is valid, and which is taken, is vLLM's own say; so is what its builder's
full graphs can replay, before anything is built.

Rule: where a class cannot be asked, the table answers for it, and its answer says so by naming a
line of source. What a backend's constructor refuses is the table's to say in any case.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from vllm_av.preflight.backends.priorities import priorities
from vllm_av.preflight.backends.query import Query, query
from vllm_av.preflight.backends.row import Row
from vllm_av.preflight.backends.rows import own, rows
from vllm_av.preflight.backends.selector import choose, choose_without, validates, within_chunks
from vllm_av.preflight.backends.source import module_names
from vllm_av.preflight.backends.standin import spec, stand_in
from vllm_av.preflight.backends.table import answer as from_table
from vllm_av.preflight.backends.table import candidate as from_row
from vllm_av.preflight.backends.table import limits
from vllm_av.preflight.backends.versions import nearest
from vllm_av.preflight.capabilities import Candidate, LayerAnswer
from vllm_av.preflight.facts import LayerGroup, Setup

VARLEN = "varlen_cudagraphs_required"
"""What tells a patched selector K+1."""

ASKED = "asked"
"""The source of an answer that a class gave."""


@dataclass(frozen=True)
class ClassCapabilities:
    """The classes of the vLLM of this process.

    Args:
        vllm_config: the engine's; None for a stand-in.
    """

    vllm_config: Any = None

    def answer(self, setup: Setup, group: LayerGroup) -> LayerAnswer:
        """What vLLM would do with these layers; ``setup.gpu`` is known."""
        asked = query(setup, group)
        config = self.vllm_config or stand_in(setup, asked)
        with _current(config):
            return _Asking(setup, group, asked, config).answer()


@dataclass(frozen=True)
class _Asking:
    """One group of layers."""

    setup: Setup
    group: LayerGroup
    asked: Query
    config: Any

    def answer(self) -> LayerAnswer:
        version = nearest(self.setup.vllm)
        table = from_table(self.group, self.asked, version)
        if self.asked.model_named is not None:
            only = self._candidate(own.named(self.asked.model_named, self.asked), None)
            return LayerAnswer(self.group, only, (only,), only)
        order = self._order()
        if self.asked.named is not None and self.asked.named not in order:
            order.append(self.asked.named)
        judged = [self._candidate(name, table) for name in order]
        chosen, without = self._chosen(judged), self._without(judged)
        judged.sort(key=lambda each: each is not chosen)
        named = [each.name for each in table.candidates if each.name not in order]
        more = [self._candidate(name, table) for name in named]
        fit = [each for each in more if each.suffices(self.asked.max_query_len)]
        found = LayerAnswer(self.group, chosen, (*judged, *fit), without)
        return within_chunks(found) if self.asked.chunked else found

    def _order(self) -> list[str]:
        """The names of vLLM's own list of priorities."""
        asked = self.asked
        if asked.on("cuda"):
            cuda = import_module("vllm.platforms.cuda")
            found = cuda._get_backend_priorities(
                use_mla=asked.mla,
                device_capability=self._capability(),
                num_heads=asked.num_heads,
                kv_cache_dtype=asked.kv_cache_dtype,
                use_non_causal=asked.non_causal,
                head_size=asked.head_size,
                use_mm_prefix=asked.mm_prefix,
            )
        elif asked.on("rocm"):
            rocm = import_module("vllm.platforms.rocm")
            found = rocm._get_backend_priorities(asked.mla, asked.sparse, asked.kv_connector)
        else:
            # these platforms have no list: their selector is a chain of conditions
            return priorities(asked)
        return [each.name for each in found]

    def _candidate(self, name: str, table: LayerAnswer | None) -> Candidate:
        """What the class says, else what the table says for it."""
        layers = spec(self.asked, self.group)
        try:
            backend = backend_class(name, self._row(name), self.asked.gpu.platform)
            builder = backend.get_builder_cls()
            support = builder.get_cudagraph_support(self.config, layers).name
            bound = builder.get_varlen_cudagraph_max_query_len(self.config, layers)
            lens = bool(backend.supports_device_cpu_query_lens_mismatch())
            why = tuple(self._invalid(name, backend))
        except Exception as error:
            return self._unasked(name, table, error)
        row = self._row(name)
        note = row.note(self.asked) if row is not None else ""
        more = limits(row, self.asked, nearest(self.setup.vllm))
        return Candidate(name, why, lens, support, bound, ASKED, note, more)

    def _invalid(self, name: str, backend: Any) -> list[str]:
        if self.asked.model_named or not validates(name, self.asked):
            return []
        found: list[str] = backend.validate_configuration(
            device_capability=self._capability(),
            **self._selector_config(adaptive=not self.asked.patched)._asdict(),
        )
        return found

    def _unasked(self, name: str, table: LayerAnswer | None, error: Exception) -> Candidate:
        """From the table; of a build of vLLM for that GPU, which itself would leave it out, so."""
        version = nearest(self.setup.vllm)
        known = {each.name: each for each in table.candidates} if table else {}
        found = known.get(name) or from_row(self._row(name), self.asked, version, name, ())
        note = f"not asked: {type(error).__name__}: {error}".splitlines()[0][:200]
        if isinstance(error, ImportError) and self.vllm_is_for_this_gpu and table is not None:
            return replace(found, invalid=(note.removeprefix("not asked: "),), source=ASKED)
        return replace(found, note=f"{found.note}; {note}" if found.note else note)

    @property
    def vllm_is_for_this_gpu(self) -> bool:
        """Whether an import that fails here fails in the engine too."""
        from vllm_av.triton_shim.target import vllm_is_cpu

        return not vllm_is_cpu() or self.asked.on("cpu")

    def _row(self, name: str) -> Row | None:
        return rows(nearest(self.setup.vllm)).get(name)

    def _chosen(self, judged: list[Candidate]) -> Candidate | None:
        """What vLLM's own selector takes; the table's rules where one could not be asked."""
        if any(each.source != ASKED for each in judged) or not self._can_select():
            return choose(judged, self.asked)
        found = self._selected(judged, adaptive=True)
        # A patched selector falls back to what it takes without adaptive verification.
        return self._without(judged) if found is None and self.asked.patched else found

    def _can_select(self) -> bool:
        """Whether this vLLM's selector is of the kind that is asked about."""
        from vllm.v1.attention import backend

        return not self.asked.patched or hasattr(backend, VARLEN)

    def _without(self, judged: list[Candidate]) -> Candidate | None:
        """The same with adaptive verification off."""
        if any(each.source != ASKED for each in judged):
            return choose_without(judged, self.asked)
        return self._selected(judged, adaptive=False)

    def _selected(self, judged: list[Candidate], adaptive: bool) -> Candidate | None:
        from vllm.platforms import current_platform
        from vllm.v1.attention.backends.registry import AttentionBackendEnum

        try:
            named = AttentionBackendEnum[self.asked.named] if self.asked.named else None
            with self._bound(adaptive):
                path = current_platform.get_attn_backend_cls(
                    named,
                    attn_selector_config=self._selector_config(adaptive),
                    num_heads=self.asked.num_heads if self.asked.mla else None,
                )
        except (ValueError, NotImplementedError):
            return None
        for each in judged:
            backend = backend_class(each.name, self._row(each.name), self.asked.gpu.platform)
            if path in (f"{backend.__module__}.{backend.__qualname__}", _path(each.name)):
                return each
        return None

    def _bound(self, adaptive: bool) -> AbstractContextManager[Any]:
        """Within, a patched selector asks for graphs of 1 to K+1 tokens per request."""
        if not (adaptive and self.asked.patched):
            return nullcontext()
        from vllm.v1.attention import backend

        required: AbstractContextManager[Any] = getattr(backend, VARLEN)(self.asked.max_query_len)
        return required

    def _selector_config(self, adaptive: bool) -> Any:
        import torch
        from vllm.v1.attention.selector import AttentionSelectorConfig

        asked = self.asked
        return AttentionSelectorConfig(
            head_size=asked.head_size,
            dtype=getattr(torch, asked.dtype),
            kv_cache_dtype=asked.kv_cache_dtype,
            block_size=asked.block_size,
            use_mla=asked.mla,
            has_sink=asked.sink,
            use_sparse=asked.sparse,
            use_mm_prefix=asked.mm_prefix,
            has_sliding_window=asked.sliding,
            use_non_causal=asked.non_causal,
            use_batch_invariant=asked.batch_invariant,
            use_kv_connector=asked.kv_connector,
            use_pcp=asked.pcp > 1,
            use_adaptive_verification=adaptive,
            use_dcp=asked.dcp > 1,
            use_rswa=asked.rswa,
        )

    def _capability(self) -> Any:
        from vllm.platforms import current_platform

        return current_platform.get_device_capability()


def backend_class(name: str, row: Row | None, platform: str) -> Any:
    """The class of that name, of either enum or, where neither has it, of the row's module.

    Raises:
        Exception: whatever importing it raises.
    """
    from vllm.v1.attention.backends import registry

    mine = row is not None and platform in row.elsewhere
    for enum in () if mine else (registry.AttentionBackendEnum, registry.MambaAttentionBackendEnum):
        if name in enum.__members__:
            return enum[name].get_class()
    if row is None:
        raise KeyError(f"{name} is no backend of this vLLM")
    file, _, attribute = row.elsewhere.get(platform, row.at).partition(":")
    for module in module_names(file):
        try:
            return getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise
    raise ModuleNotFoundError(row.at)


def _path(name: str) -> str | None:
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    known = name in AttentionBackendEnum.__members__
    return AttentionBackendEnum[name].get_path() if known else None


@contextmanager
def _current(config: Any) -> Iterator[None]:
    from vllm.config import set_current_vllm_config

    with set_current_vllm_config(config):
        yield
