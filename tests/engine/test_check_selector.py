"""Which backend vLLM selects with adaptive verification: for the target's layers one that can do it
where there is one; the draft's keep theirs."""

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch

from tests.engine.checking import STEPS, config

QUERY = STEPS + 1


def backend(name: str, *, lens: bool, graphs: str, bound: int | None = None) -> Any:
    """A class of vLLM's, as far as the selector looks at it."""
    from vllm.v1.attention import backend as vllm

    class Builder(vllm.AttentionMetadataBuilder):
        _cudagraph_support = vllm.AttentionCGSupport[graphs]

        @classmethod
        def get_varlen_cudagraph_max_query_len(cls, vllm_config: Any, spec: Any) -> int | None:
            # The geometry that builders ask for.
            assert (spec.num_kv_heads, spec.head_size, spec.dtype) == (1, 32, torch.float32)
            assert vllm_config.speculative_config.num_speculative_tokens == STEPS
            return bound

    class Backend(vllm.AttentionBackend):
        supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float32]

        @staticmethod
        def get_name() -> str:
            return name

        @staticmethod
        def get_impl_cls() -> Any:
            class Impl:
                supports_pcp = supports_dcp = True

            return Impl

        @staticmethod
        def get_builder_cls() -> Any:
            return Builder

        @classmethod
        def supports_device_cpu_query_lens_mismatch(cls) -> bool:
            return lens

    Backend.__name__ = Backend.__qualname__ = name
    Backend.__module__ = __name__
    globals()[name] = Backend
    return Backend


class Platform:
    """Takes the first of its backends that is valid, as vLLM's CUDA platform does."""

    device_name = "test"

    def __init__(self, *backends: Any) -> None:
        self.backends = backends

    def get_attn_backend_cls(
        self, named: Any, attn_selector_config: Any, num_heads: int | None = None
    ) -> str:
        for each in [named] if named else self.backends:
            if not each.validate_configuration(
                device_capability=None, **attn_selector_config._asdict()
            ):
                return f"{__name__}.{each.__name__}"
        raise ValueError("No valid attention backend found")


PLANS = {"lens": False, "graphs": "ALWAYS"}
UNIFORM = {"lens": True, "graphs": "UNIFORM_BATCH"}
ENOUGH = UNIFORM | {"bound": QUERY}
ANY = {"lens": True, "graphs": "ALWAYS"}
NEVER = {"lens": True, "graphs": "NEVER", "bound": QUERY}
SHORT = UNIFORM | {"bound": QUERY - 1}


@pytest.fixture
def select(weightless: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """``select(kinds, ...)``: which of these backends a layer gets, by its place."""
    import vllm.compilation.backends as compilation
    from vllm.config import set_current_vllm_config
    from vllm.v1.attention import selector

    whole = config(weightless)

    def chosen(
        *kinds: dict[str, Any],
        tag: str = "backbone",
        named: int | None = None,
        adaptive: bool = True,
        of_draft: bool = False,
    ) -> int:
        backends = [backend(f"B{place}", **kind) for place, kind in enumerate(kinds)]
        monkeypatch.setattr("vllm.platforms.current_platform", Platform(*backends))
        monkeypatch.setattr(compilation, "model_tag", tag)
        spec = whole.speculative_config
        monkeypatch.setattr(spec, "enable_adaptive_verification", adaptive)
        if of_draft:
            monkeypatch.setattr(whole, "model_config", spec.draft_model_config)
        attention = whole.attention_config
        monkeypatch.setattr(attention, "backend", None if named is None else backends[named])
        selector._cached_get_attn_backend.cache_clear()
        with set_current_vllm_config(whole):
            found = selector.get_attn_backend(32, torch.float32, None)
        return int(found.get_name().removeprefix("B"))

    yield chosen
    selector._cached_get_attn_backend.cache_clear()


@pytest.mark.parametrize("tag", ["backbone", "self_decoder", "cross_decoder"])
@pytest.mark.parametrize(
    ("kinds", "place"),
    [
        ((UNIFORM, ANY), 1),
        ((PLANS, SHORT, NEVER, ENOUGH, ANY), 3),
        ((ANY, ENOUGH), 0),
        ((ENOUGH, ANY), 0),
        # None can: it is refused, and which one is taken is as without adaptive verification.
        ((UNIFORM, SHORT), 0),
        ((PLANS, UNIFORM), 0),
    ],
)
def test_the_target_gets_the_first_that_can_do_it(
    select: Any, kinds: tuple[dict[str, Any], ...], place: int, tag: str
) -> None:
    assert select(*kinds, tag=tag) == place
    assert select(*kinds, tag=tag, adaptive=False) == 0


@pytest.mark.parametrize("kind", [PLANS, UNIFORM, SHORT, NEVER])
def test_a_backend_that_is_named_stays(select: Any, kind: dict[str, Any]) -> None:
    assert select(ANY, kind, named=1) == 1


@pytest.mark.parametrize("tag", ["dflash_head", "dspark_head"])
def test_drafts_of_whole_blocks_have_any_backend(select: Any, tag: str) -> None:
    assert select(PLANS, ANY, tag=tag) == 0


@pytest.mark.parametrize(("tag", "of_draft"), [("eagle_head", False), ("self_decoder", True)])
def test_drafts_that_read_the_trimmed_batch_need_its_lengths_and_no_graph(
    select: Any, tag: str, of_draft: bool
) -> None:
    """EAGLE's is told by its tag, a draft model of several parts by its config."""
    assert select(PLANS, UNIFORM, ANY, tag=tag, of_draft=of_draft) == 1
    with pytest.raises(ValueError, match="No valid attention backend"):
        select(PLANS, tag=tag, of_draft=of_draft)
