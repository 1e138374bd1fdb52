"""Which of the candidates vLLM's selector takes (``get_attn_backend_cls`` of each platform).

* CUDA, ROCm: a named backend is taken or refused; else the first valid one by priority. On ROCm a
  named one may be left for a packed cache, which it cannot read;
* XPU: a chain of conditions that looks at the validity of one backend;
* the CPU: its own, whatever is named.

A selector that this package's series patched also leaves out, where adaptive verification is on,
what cannot replay 1 to K+1 tokens per request; and where nothing is left, or what is named does
not suffice, it takes what it would take without adaptive verification, for the collected check to
refuse with every reason.

Rule: the choice is vLLM's, which knows nothing of a backend's limits; what it costs adaptive
verification is for the rules to say.
"""

from dataclasses import replace

from vllm_av.preflight.backends.query import Query
from vllm_av.preflight.backends.row import MISMATCH, PLAIN_CACHE
from vllm_av.preflight.capabilities import NEVER, Candidate, LayerAnswer

CACHE = "kv_cache_dtype not supported"


def validates(name: str, asked: Query) -> bool:
    """Whether the platform's selector asks that backend whether it is valid."""
    everywhere = asked.on("cuda") or asked.on("rocm")
    return everywhere or (asked.on("xpu") and name == "XPU_FLASH_ATTN_MLA")


def choose(judged: list[Candidate], asked: Query) -> Candidate | None:
    """What the selector takes of candidates in its order of priority.

    Args:
        judged: all that it considers, and the named one.
        asked: the query.
    """
    if not (asked.on("cuda") or asked.on("rocm")):
        known = {each.name: each for each in judged}
        name = _xpu(asked, known) if asked.on("xpu") else _cpu(asked)
        return None if name is None else known[name]
    named = next((each for each in judged if each.name == asked.named), None)
    packed = asked.kv_cache_dtype.startswith(("turboquant_", "ultraquant_"))
    if named is not None and not (asked.on("rocm") and packed and named.invalid == (CACHE,)):
        return None if named.invalid else named
    valid = [each for each in judged if not each.invalid]
    if asked.patched:
        fit = [each for each in valid if each.promises(asked.max_query_len)]
        valid = [*fit, *valid]
    return valid[0] if valid else None


def choose_without(judged: list[Candidate], asked: Query) -> Candidate | None:
    """The same with adaptive verification off."""
    plain = [
        replace(each, invalid=tuple(why for why in each.invalid if why != MISMATCH))
        for each in judged
    ]
    found = choose(plain, replace(asked, patched=False))
    return None if found is None else judged[plain.index(found)]


def within_chunks(found: LayerAnswer, source: str | None = None) -> LayerAnswer:
    """For layers that attend within chunks: a wrapper around the backend that was taken.

    Args:
        found: what the selector, which is told nothing of the chunks, makes of them.
        source: where it was read that the wrapper has no graphs; None where it was asked.
    """

    def wrapped(each: Candidate) -> Candidate:
        told = source if source and not each.invalid else each.source
        note = f"within chunks; {each.note}" if each.note else "within chunks"
        return replace(each, graphs=NEVER, bound=None, source=told, note=note)

    return replace(
        found,
        chosen=None if found.chosen is None else wrapped(found.chosen),
        without=None if found.without is None else wrapped(found.without),
        candidates=tuple(map(wrapped, found.candidates)),
    )


def _xpu(asked: Query, known: dict[str, Candidate]) -> str | None:
    named = asked.named
    if asked.kv_cache_dtype.startswith("turboquant_"):
        return "TURBOQUANT"
    if asked.sparse:
        return "XPU_MLA_SPARSE"
    if asked.mla:
        if named not in (None, "TRITON_MLA", "FLASH_ATTN_MLA"):
            return None
        if named == "TRITON_MLA":
            return named
        own = known["XPU_FLASH_ATTN_MLA"]
        if not own.invalid and (not asked.patched or own.promises(asked.max_query_len)):
            return own.name
        if named is None:
            return "TRITON_MLA"
        return own.name if asked.patched and not own.invalid else None
    if named == "TRITON_ATTN":
        return named
    if named != "FLASH_ATTN" and (asked.batch_invariant or asked.mm_prefix):
        both = asked.mm_prefix and not asked.batch_invariant and not asked.old
        if both and named in (None, "TRITON_FLASH_ATTN") and asked.dtype != "float32":
            if asked.head_size in (256, 512):
                return "TRITON_FLASH_ATTN"
            return "TRITON_ATTN" if named is None else None
        return "TRITON_ATTN"
    if asked.dtype == "float32" and not (asked.batch_invariant or asked.mm_prefix):
        return "TRITON_ATTN"
    return "FLASH_ATTN" if named in (None, "FLASH_ATTN") else None


def _cpu(asked: Query) -> str | None:
    if asked.sparse:
        return None
    if asked.mla:
        return "CPU_MLA" if asked.old or asked.kv_cache_dtype in PLAIN_CACHE else None
    fp8 = ("fp8", "fp8_e4m3", "fp8_e5m2")
    return "CPU_ATTN" if asked.old or asked.kv_cache_dtype in (*PLAIN_CACHE, *fp8) else None
