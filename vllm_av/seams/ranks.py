"""The ranks that run one batch together, of which one reads and writes files for all.

Rule: these are the ranks of tensor parallelism and of prefill context parallelism; those of data
parallelism have batches of their own.
"""

from typing import Any


def is_first() -> bool:
    """Whether this is the one of its batch's ranks that reads and writes."""
    return all(group.rank_in_group == 0 for group in _groups())


def from_first(value: Any) -> Any:
    """What the first rank passes, on each of them: all have to call it."""
    for group in _groups():
        value = group.broadcast_object(value, src=0)
    return value


def _groups() -> tuple[Any, ...]:
    # Not at the head: vLLM loads the seams in every process, for everybody.
    from vllm.distributed.parallel_state import get_pcp_group, get_tp_group

    return get_tp_group(), get_pcp_group()
