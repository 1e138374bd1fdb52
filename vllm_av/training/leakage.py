"""Which sequences of a corpus may train: none that gives away what is measured.

Left out are questions about files that are held out, and texts that share more than a quarter of a
held-out prompt's runs of six words: the library and HumanEval tell some things twice, in nearly
the same words.

Rule: it follows from the texts alone, so that it is the same at each opening of a corpus; what was
generated stays as it is.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from vllm_av.training.library import is_held_out

_RUN = 6  # words
_SHARED = 0.25


class Near:
    """Says of a text whether it is near to one of ``prompts``, however either is indented."""

    def __init__(self, prompts: Iterable[str]) -> None:
        # Of prompts with as long runs, which ones have a run; a short prompt is one run.
        self._holders: dict[int, dict[tuple[str, ...], list[int]]] = defaultdict(dict)
        self._counts: list[int] = []
        for number, prompt in enumerate(prompts):
            words = prompt.split()
            length = min(_RUN, max(len(words), 1))
            found = _runs(words, length)
            self._counts.append(len(found))
            for run in found:
                self._holders[length].setdefault(run, []).append(number)

    def __call__(self, text: str) -> bool:
        words = text.split()
        for length, holders in self._holders.items():
            shared: dict[int, int] = defaultdict(int)
            for run in _runs(words, length):
                for number in holders.get(run, ()):
                    shared[number] += 1
            if any(count > _SHARED * self._counts[number] for number, count in shared.items()):
                return True
        return False


def kept_back(described: list[dict[str, Any]], texts: list[str], prompts: list[str]) -> list[bool]:
    """Whether each sequence is kept from training.

    Args:
        described: of each sequence, as ``sequences.json`` has it.
        texts: of each, prompt and answer.
        prompts: the held-out ones.
    """
    near = Near(prompts)
    return [
        row["held_out"] or any(map(is_held_out, _files(row))) or near(text)
        for row, text in zip(described, texts, strict=True)
    ]


def _files(row: dict[str, Any]) -> list[str]:
    """The library's file that a sequence asks about or continues, if there is one."""
    source: str = row["source"]
    if row["workload"] == "docs":
        return [source.rpartition(".")[0].replace(".", "/") + ".py"]
    return [source.rpartition(":")[0]] if row["workload"] == "code" else []


def _runs(words: list[str], length: int) -> set[tuple[str, ...]]:
    return {tuple(words[at : at + length]) for at in range(len(words) - length + 1)}
