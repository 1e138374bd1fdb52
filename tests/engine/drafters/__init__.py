"""A tiny checkpoint of every drafter type, each with a target whose output can be enumerated.

The weights are random, but for what lets a drafter know its target a little: so that its drafts
are neither all accepted nor all rejected. Layouts are those that vLLM's models load.

Rule: seeds are written here; equal code makes equal checkpoints.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.engine.drafters import autoregressive, block, gemma4, mtp
from tests.engine.drafters.target import Pair


class Type(NamedTuple):
    """``row`` of :mod:`vllm_av.drafters`; ``method`` as in vLLM's ``--speculative-config``;
    ``make`` writes the checkpoints into folders of their own below the one given.
    """

    row: str
    method: str
    make: Callable[[Path], Pair]


TYPES = {
    "draft model": Type("draft-model", "draft_model", autoregressive.draft_model),
    "EAGLE": Type("eagle", "eagle", autoregressive.eagle),
    "EAGLE-3": Type("eagle3", "eagle3", autoregressive.eagle3),
    "EAGLE-3, few tokens": Type("eagle3", "eagle3", autoregressive.eagle3_of_few_tokens),
    "MTP": Type("mtp", "mtp", mtp.one_module),
    "MTP of modules": Type("multi-module-mtp", "mtp", mtp.many_modules),
    "MTP of Gemma 4": Type("gemma4-mtp", "mtp", gemma4.assistant),
    "DFlash": Type("dflash", "dflash", block.dflash),
    "DFlash, few tokens": Type("dflash", "dflash", block.dflash_of_few_tokens),
    "DFlash2": Type("dflash2", "dflash", block.dflash2),
    "LiLiCorr": Type("lilicorr", "dflash", block.lilicorr),
    "DSpark": Type("dspark-headless", "dspark", block.dspark),
    "DSpark, few tokens": Type("dspark-headless", "dspark", block.dspark_of_few_tokens),
    "DSpark, head": Type("dspark", "dspark", block.dspark_with_head),
}
