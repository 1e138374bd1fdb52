"""Check mode: every launch runs compiled and in Triton's interpreter, and the results are compared.

Rule: integers identical, floats within 2e-5 (relative or absolute), NaN where the other has NaN.
The half types' last bit is worth more than that: they may differ by two of it, which is relative,
so that a small value must agree as well as a large one.
The interpreter works on copies of the tensors' storages, so that the run goes on with the compiled
kernels' results.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from vllm_av.cpu import interpreter
from vllm_av.cpu.launcher import Launcher

TOLERANCE = 2e-5
_Storages = dict[int, tuple[Any, Any, torch.dtype]]


@dataclass(slots=True)
class Report:
    """What was compared."""

    launches: Counter[str] = field(default_factory=Counter)
    interpreted: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


def _copied(values: Any, storages: _Storages) -> Any:
    if isinstance(values, tuple):
        return tuple(_copied(v, storages) for v in values)
    if isinstance(values, dict):
        return {k: _copied(v, storages) for k, v in values.items()}
    if not isinstance(values, torch.Tensor):
        return values
    storage = values.untyped_storage()
    place = storage.data_ptr()
    if place not in storages:
        storages[place] = (storage, storage.clone(), values.dtype)
    copy = torch.empty(0, dtype=values.dtype)
    return copy.set_(storages[place][1], values.storage_offset(), values.size(), values.stride())


def copied(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of a launch on storages of their own; tensors that share one still do."""
    storages: _Storages = {}
    return _copied(args, storages), _copied(kwargs, storages)


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> str | None:
    """How two tensors of one dtype differ beyond the rule, or None."""
    if not ours.dtype.is_floating_point:
        wrong = ours != theirs
    else:
        wrong = ~torch.isclose(
            ours.double(),
            theirs.double(),
            rtol=max(TOLERANCE, 2 * torch.finfo(ours.dtype).eps),
            atol=TOLERANCE,
            equal_nan=True,
        )
    if not bool(wrong.any()):
        return None
    at = int(wrong.flatten().nonzero()[0])
    return (
        f"{int(wrong.sum())} of {wrong.numel()} {ours.dtype} differ, first at {at}: "
        f"compiled {ours.flatten()[at].item()}, interpreted {theirs.flatten()[at].item()}"
    )


def _flat(storage: Any, dtype: torch.dtype) -> torch.Tensor:
    size = storage.nbytes() // torch.empty(0, dtype=dtype).element_size()
    return torch.empty(0, dtype=dtype).set_(storage, 0, (size,))


def compare(launcher: Launcher, grid: Any, args: Any, kwargs: Any, report: Report) -> None:
    """Launch both ways and note how they differ."""
    name = launcher.name
    storages: _Storages = {}
    args_copy, kwargs_copy = _copied(args, storages), _copied(kwargs, storages)
    _RUN(launcher, grid, args, kwargs)
    interpreter.run(launcher.function, grid, args_copy, kwargs_copy)
    report.launches[name] += 1
    if launcher.refused:
        report.interpreted[name] += 1
    for real, copy, dtype in storages.values():
        found = difference(_flat(real, dtype), _flat(copy, dtype))
        if found is not None:
            report.differences.append(f"{name}: {found}")


_RUN = Launcher.__call__


@contextmanager
def compared() -> Iterator[Report]:
    """Compare every launch in here.

    A kernel that the interpreter cannot run raises what the interpreter raises. Needs
    :func:`vllm_av.cpu.install`, and the launches in this process.
    """
    report = Report()

    def checked(self: Launcher, grid: Any, args: Any, kwargs: Any) -> None:
        compare(self, grid, args, kwargs, report)

    Launcher.__call__ = checked  # type: ignore[method-assign]
    try:
        yield report
    finally:
        Launcher.__call__ = _RUN  # type: ignore[method-assign]
