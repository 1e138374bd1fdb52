"""The drafters that the package carries, each with its target; see their ``PROVENANCE.md``.

A drafter with a reduced vocabulary is carried without its output head, which is the target's rows
at its tokens: :mod:`vllm_av.demo.completion` adds them.

Rule: what vLLM loads is complete; what the package carries holds nothing that the target has.
"""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from vllm_av.demo.completion import completed
from vllm_av.demo.contents import CONFIG, WEIGHTS
from vllm_av.errors import Code, DemoError


@dataclass(frozen=True)
class Drafter:
    """One that can be demonstrated.

    Args:
        name: what ``--drafter`` takes.
        folder: below ``vllm_av/data``.
        method: vLLM's.
        pair: target and drafter, as a sentence names them.
        own_target: the folder holds the target, which has the drafter inside.
        without: weights that are left out, by the beginning of their names.
    """

    name: str
    folder: str
    method: str
    pair: str
    own_target: bool = False
    without: str | None = None


_SMOLLM2 = "SmolLM2-135M-Instruct with"
_ALL = (
    Drafter("eagle", "smollm2-eagle", "eagle", f"{_SMOLLM2} an EAGLE head"),
    Drafter("eagle3", "smollm2-eagle3", "eagle3", f"{_SMOLLM2} an EAGLE-3 head"),
    Drafter(
        "mtp",
        "mimo-mtp",
        "mtp",
        "A small target of this package with its MTP layer",
        own_target=True,
    ),
    Drafter("dflash", "smollm2-dflash", "dflash", f"{_SMOLLM2} a DFlash drafter"),
    Drafter(
        "dspark",
        "smollm2-dspark",
        "dspark",
        f"{_SMOLLM2} a DSpark drafter with a confidence head",
    ),
    Drafter(
        "dspark-headless",
        "smollm2-dspark",
        "dspark",
        f"{_SMOLLM2} a DSpark drafter without a confidence head",
        without="confidence_head.",
    ),
    Drafter("draft-model", "smollm2-draft", "draft_model", f"{_SMOLLM2} a small draft model"),
)
DRAFTERS = {drafter.name: drafter for drafter in _ALL}


def find(name: str) -> Drafter:
    """The drafter ``name``.

    Raises:
        DemoError: ``AV-DEMO-OPTION``.
    """
    if name not in DRAFTERS:
        raise DemoError(
            Code.DEMO_OPTION,
            given=f"--drafter {name}",
            allowed=f"--drafter takes one of {', '.join(DRAFTERS)}",
            fix="choose one of these",
        )
    return DRAFTERS[name]


def carried(name: str) -> Path:
    """Folder of the drafter ``name`` as the package carries it."""
    return Path(str(files("vllm_av").joinpath("data", find(name).folder)))


def require(name: str) -> Path:
    """:func:`carried`, where its files are there.

    Raises:
        DemoError: ``AV-DEMO-CHECKPOINT`` if they are not.
    """
    folder = carried(name)
    missing = [file for file in (CONFIG, WEIGHTS) if not (folder / file).is_file()]
    if missing:
        raise DemoError(
            Code.DEMO_CHECKPOINT,
            given=f"the drafter {name} lacks {' and '.join(missing)} in {folder}",
            allowed="a drafter that this copy of vllm_av carries",
            fix="install vllm_av again, or, in a checkout, train it by "
            f"`make drafters DRAFTER={name}` and then "
            f"`.venv/bin/python -m vllm_av.training install {name}`",
        )
    return folder


def checkpoint(name: str, target: Path) -> Path:
    """Folder of the drafter ``name`` as vLLM loads it, kept in the cache where it is completed.

    Args:
        name: a key of ``DRAFTERS``.
        target: folder of the target's checkpoint; not read for a drafter that holds its target.

    Raises:
        DemoError: ``AV-DEMO-OPTION`` if there is no such drafter, ``AV-DEMO-CHECKPOINT`` if it is
            missing or damaged.
        SetupError: ``AV-CACHE-DIR`` if the cache cannot be written.
    """
    return completed(require(name), target, without=find(name).without)
