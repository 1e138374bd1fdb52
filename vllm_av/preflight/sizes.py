"""vLLM's own sizes where the user names none: requests, tokens, and how far graphs are captured.

Rule: as ``EngineArgs.get_batch_defaults`` and ``VllmConfig._set_cudagraph_sizes`` of vLLM 0.32 and
0.33 have them for ``vllm serve``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vllm_av.preflight.backends.gpus import rocm_target
from vllm_av.preflight.facts import Gpu

_CUDA = {(9, 0): 80, (10, 0): 180, (10, 3): 270, (11, 0): 122}
_ROCM = {"gfx942": 192, "gfx950": 288, "gfx1250": 432}
"""GiB, of the smallest GPU of that capability; what is not listed has less than 70."""
_LARGE_OF_ITS_KIND = ("rtxpro6000", "a800")


@dataclass(frozen=True)
class Sizes:
    """Of the scheduler, for a server."""

    max_num_seqs: int
    max_num_batched_tokens: int


def sizes(
    gpu: Gpu | None,
    *,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    max_model_len: int | None = None,
    chunked: bool = True,
    ranks: int = 1,
    throughput: bool = False,
) -> Sizes:
    """The two numbers, None standing for vLLM's default on that GPU.

    Args:
        max_model_len: where it is known.
        chunked: whether a prompt may be prefilled in parts.
        ranks: tensor parallel times pipeline parallel.
        throughput: of ``--performance-mode``.
    """
    default = _defaults(gpu, ranks)
    seqs, tokens = default.max_num_seqs, default.max_num_batched_tokens
    if throughput:
        seqs, tokens = 2 * seqs, 2 * tokens
    seqs = max_num_seqs or seqs
    if max_num_batched_tokens is None and max_model_len is not None:
        tokens = min(tokens if chunked else max(tokens, max_model_len), seqs * max_model_len)
    tokens = max_num_batched_tokens or tokens
    return Sizes(max_num_seqs or min(seqs, tokens), tokens)


def _defaults(gpu: Gpu | None, ranks: int) -> Sizes:
    if gpu is not None and gpu.platform == "cpu":
        return Sizes(128 * ranks, 2048 * ranks)
    memory = _memory(gpu)
    if memory >= 160:
        return Sizes(1024, 16384)
    return Sizes(1024, 8192) if memory >= 70 else Sizes(256, 2048)


def _memory(gpu: Gpu | None) -> int:
    """GiB; 0 where it is small, cannot be seen, or an A100, which vLLM counts as small."""
    if gpu is None or gpu.platform not in ("cuda", "rocm"):
        return 0
    name = "".join(char for char in gpu.name.lower() if char.isalnum())
    if any(large in name for large in _LARGE_OF_ITS_KIND):
        return 80
    if gpu.platform == "rocm":
        return _ROCM.get(rocm_target(gpu), 0)
    return _CUDA.get((gpu.major, gpu.minor), 0)


def capture_size(
    gpu: Gpu | None,
    found: Sizes,
    query_len: int,
    *,
    largest: int | None = None,
    listed: Sequence[int] | None = None,
) -> int:
    """The largest captured batch, in tokens.

    Args:
        query_len: K + 1.
        largest: ``max_cudagraph_capture_size`` where the user sets it.
        listed: ``cudagraph_capture_sizes`` where the user lists them.
    """
    tokens = found.max_num_batched_tokens
    if listed:
        return max((size for size in listed if size <= tokens), default=0)
    family = gpu is not None and gpu.platform == "cuda" and gpu.major == 10
    ceiling = 1024 if family else 512
    limit = min(found.max_num_seqs * query_len * 2, ceiling) if largest is None else largest
    decode: list[int] = []
    if largest is None and query_len > 1:
        counts = _requests(min(found.max_num_seqs, ceiling))
        decode = [count * query_len for count in counts if count * query_len <= limit]
    elif largest is None and found.max_num_seqs <= limit:
        decode = [found.max_num_seqs]
    limit = min(limit, tokens)
    sizes = [size for size in (1, 2, 4) if size <= limit]
    sizes += range(8, min(limit + 1, 256), 8)
    sizes += range(256, limit + 1, 16)
    sizes += [tokens] if tokens <= limit else []
    sizes += [size for size in decode if size <= tokens]
    return max(sizes, default=0)


def _requests(most: int) -> Iterator[int]:
    yield from (count for count in (1, 2, 4) if count <= most)
    yield from range(8, min(most + 1, 256), 8)
    yield from range(256, most + 1, 16)
    yield most
