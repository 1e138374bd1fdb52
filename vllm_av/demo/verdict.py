"""Which of two arms was faster, by the clock and by the time that their processes computed.

Other work on the machine takes from the clock's time and not from the processor's.

Rule: where the two do not name the same arm, there is no verdict, and both figures are told.
"""

from vllm_av.demo.figures import Load

NO_VERDICT = "no verdict"

_NEARLY_WHOLE = 0.9
"""Share of a core from which the clock's figure is told alone."""
_NOTICEABLE = 0.1
"""Part by which one figure exceeds the other before both are told."""


def core_share(load: Load) -> float:
    """Share of a core that the process had, at most 1."""
    return min(1.0, load.cpu_seconds / load.seconds)


def against(name: str, load: Load, base_name: str, base: Load) -> str:
    """A clause that compares ``load``, called ``name``, with ``base``."""
    clock = round(load.tokens_per_second / base.tokens_per_second, 2)
    core = round(load.tokens_per_cpu_second / base.tokens_per_cpu_second, 2)
    apart = max(clock, core) > (1 + _NOTICEABLE) * min(clock, core)
    both = f"{clock:.2f}x by the clock, {core:.2f}x by core time"
    directions = (clock - 1) * (core - 1)
    if directions < 0 or (apart and directions == 0):
        return f"{name} against {base_name}: {NO_VERDICT} ({both})"
    whole = min(core_share(load), core_share(base)) >= _NEARLY_WHOLE
    figures = f"{clock:.2f}x" if whole and not apart else both
    if clock == 1:
        return f"{name} was as fast ({figures}) as {base_name}"
    return f"{name} was {'faster' if clock > 1 else 'slower'} ({figures}) than {base_name}"
