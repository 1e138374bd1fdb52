"""``python -m ci.provenance NAME [--minutes M] [--work W]``: write the paper of a carried drafter.

``vllm_av/data/<folder>/PROVENANCE.md`` gets its words from :mod:`ci.papers`, what was trained and
how from the carried ``config.json``, ``training.json`` and weights, and what the target accepts
from the carried ``acceptance.json``. With W, that is first taken from what ``python -m
vllm_av.training measure`` left of these very weights in W. M is how many minutes of one core the
training took; without it, what the paper already says.

Rule: no figure is written by hand but M; a test writes each paper anew and compares.
"""

import argparse
import json
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ci import acceptance
from ci.acceptance import BAR, ENOUGH, WITHOUT_BAR, Measured, figures, measured, met
from ci.papers import PAPERS
from vllm_av.demo.drafter import DRAFTERS, Drafter, carried, find
from vllm_av.training.install import stage_of
from vllm_av.training.measure import kept
from vllm_av.training.whole import of_file

NAME = "PROVENANCE.md"
NAMES = [name for name, each in DRAFTERS.items() if each.without is None]
"""One for each paper: what lacks something that another has is told of in that one's."""

_WIDTH = 140
_WEIGHTS = "model.safetensors"
_MINUTES = re.compile(r"^\| Time \| about (\d+) minutes of one core", re.MULTILINE)

Json = Mapping[str, Any]


class _Series(list[Any]):
    """A list in a record, whose format is that of each value."""

    def __format__(self, spec: str) -> str:
        return " ".join("-" if value is None else format(value, spec) for value in self)


def rows(drafter: Drafter) -> dict[str, str]:
    """What the paper's first table says of the carried files, row by row.

    Raises:
        KeyError: ``training.json`` or ``config.json`` lacks what a row says.
        ValueError: another version of the script than the one that the rows tell of made them.
    """
    folder, paper = carried(drafter.name), PAPERS[drafter.method]
    training, config = (_read(folder / f"{name}.json") for name in ("training", "config"))
    if training["version"] != paper.version:
        raise ValueError(f"{folder} was made by version {training['version']}: train it anew")
    weights = folder / _WEIGHTS
    size = weights.stat().st_size / 1e6
    count = _parameters(weights) / 1e6
    return {
        "Layout": paper.layout.format(**config),
        "Size": f"{count:.1f}M parameters, bfloat16, {size:.1f} MB",
        **{name: text.format(**training) for name, text in paper.rows.items()},
        "Script": f"`python -m vllm_av.training {stage_of(drafter)}` (`vllm_av/training/`), "
        f"version {paper.version}; its settings and last figures: `training.json`",
        "Run": "of digest `{digest}`, on Python {made_on[python]} and {made_on[processor]}, one "
        "thread".format(**training),
        "Licence": "Apache-2.0, as this project",
    }


def paper(drafter: Drafter, minutes: int) -> str:
    """The whole file.

    Args:
        drafter: a carried one.
        minutes: that its training took.

    Raises:
        KeyError: a carried file lacks what the paper says.
        ValueError: what was measured is not of the carried weights, or they are of another version.
    """
    words, folder = PAPERS[drafter.method], carried(drafter.name)
    found = measured(folder)
    if found["weights"] != of_file(folder / _WEIGHTS):
        raise ValueError(f"{folder / acceptance.NAME} is of other weights: measure these")
    table = rows(drafter) | {"Time": _time(drafter, minutes)}
    parts = [
        f"# {words.title}",
        _wrapped(words.about),
        _table(["", ""], table.items()),
        "## Licences of the text",
        _wrapped(words.distributed),
        _table(["text", "licence"], words.sources.items()),
        "## Acceptance",
        _wrapped(
            f"Measured in the engine (vLLM {found['vllm']}, {found['dtype']}, "
            f"K={found['num_speculative_tokens']}, drafts sampled, every draft verified) by "
            f"`python -m vllm_av.training measure {drafter.name}`: {found['prompts']} prompts a "
            f"workload, {found['max_tokens']} tokens each at most, none of them trained on. "
            "*Accepted* is drafts a step, without the token that the target adds itself; then the "
            "probability that a draft at each position is accepted, given that the earlier ones "
            f"were. One run, one seed; all digits: `{acceptance.NAME}`. {words.note}"
        ),
        _table(
            ["workload", "temperature", "accepted", *_positions(found), "steps"],
            _accepted(found["rows"]),
        ),
        _wrapped(_bar(drafter, found)),
        *(_confidence(found) if "said" in found["rows"][0] else ()),
        "## Files",
        "\n".join(f"    {digest}  {name}" for name, digest in digests(folder)),
    ]
    return "\n\n".join(parts) + "\n"


def minutes_of(folder: Path) -> int | None:
    """What the paper in ``folder`` says of the training; ``None`` where there is none."""
    there = (folder / NAME).exists()
    found = _MINUTES.search((folder / NAME).read_text(encoding="utf-8")) if there else None
    return int(found[1]) if found else None


def digests(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and SHA-256 of each carried file but the paper."""
    for file in sorted(folder.iterdir()):
        if file.name != NAME:
            yield file.name, of_file(file)


def _time(drafter: Drafter, minutes: int) -> str:
    said = f"about {minutes} minutes of one core"
    after = PAPERS[drafter.method].after
    if after is not None:
        said += f", after the {minutes_of(carried(after))} of `{after}`"
    return said if drafter.own_target else f"{said}; making the text and the states not counted"


def _positions(found: Measured) -> list[str]:
    return [str(place + 1) for place in range(found["num_speculative_tokens"])]


def _accepted(measured: Sequence[Json]) -> Iterator[list[str]]:
    for row in measured:
        given = (f"{value:.3f}" for value in row["given"])
        temperature, accepted = f"{row['temperature']:.0f}", f"{row['accepted']:.2f}"
        yield [row["workload"], temperature, accepted, *given, str(row["steps"])]


def _bar(drafter: Drafter, found: Measured) -> str:
    if drafter.method in WITHOUT_BAR:
        return "No bar is set for it."
    there = met(figures(found))
    said = "met" if len(there) >= ENOUGH else "missed"
    where = ", ".join(f"`{name}`" for name in there) or "none"
    return (
        f"The bar, at least {BAR[0]} at temperature 0 and {BAR[1]} at temperature 1 on {ENOUGH} "
        f"workloads or more, is {said}; those that get there: {where}."
    )


def _confidence(found: Measured) -> Iterator[str]:
    yield "## Confidence head"
    yield _wrapped(
        "What the head said of the drafts of each position on the average, over all workloads, and "
        "how many of them the target accepted: of drafts with an answer, which are those that were "
        "accepted and the first that was not. From the same run."
    )
    measured, table = found["rows"], []
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
    yield _table(["temperature", "", *_positions(found)], table)


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
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--minutes", type=int, help="of one core, of the training")
    parser.add_argument("--work", type=Path, help="folder in which it was measured")
    options = parser.parse_args()
    folder = carried(options.name)
    if options.work is not None:
        left = kept(options.work, options.name, of_file(folder / _WEIGHTS))
        if not left.exists():
            parser.error(f"{left} is not there: python -m vllm_av.training measure {options.name}")
        shutil.copyfile(left, folder / acceptance.NAME)
    minutes = options.minutes or minutes_of(folder)
    if minutes is None:
        parser.error("no paper says how many minutes the training took: give --minutes")
    text = paper(find(options.name), minutes)
    (folder / NAME).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
