"""Mend an environment in which ``import transformers`` dies of torch's companions."""

from collections.abc import Collection

from vllm_av.environment import COMPANIONS


def companions_to_remove(code: int, output: str, installed: Collection[str]) -> list[str]:
    """What to uninstall after an import check; empty where that would not help.

    Args:
        code: the check's exit code.
        output: what it printed, traceback included.
        installed: names (normal form) of the distributions that are there.
    """
    if code == 0 or not any(name in output for name in COMPANIONS):
        return []
    return [name for name in COMPANIONS if name in installed]
