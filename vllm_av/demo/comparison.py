"""The whole demonstration: the pair, then the three arms, one after the other."""

from dataclasses import dataclass
from functools import partial

from vllm_av.demo.checkpoint import smollm2
from vllm_av.demo.drafter import checkpoint, find, require
from vllm_av.demo.figures import ArmResult
from vllm_av.demo.logs import own_logs
from vllm_av.demo.process import run_arm
from vllm_av.demo.progress import Show
from vllm_av.demo.prompts import choose
from vllm_av.demo.settings import Arm, Pair, Settings, num_prompts


@dataclass(frozen=True)
class Comparison:
    """What ran and what each arm reported."""

    settings: Settings
    pair: Pair
    arms: dict[Arm, ArmResult]


def compare(settings: Settings, show: Show) -> Comparison:
    """Run the three arms; about two minutes on two cores, half a minute more the first time.

    Raises:
        DemoError: what went wrong and where the arm's log is.
        SetupError: ``AV-CACHE-DIR`` if the cache cannot be written.
    """
    choose(num_prompts(max(settings.concurrency)))  # a missing source shows before anything runs
    pair = pair_of(settings.drafter, show)
    arms = {}
    with own_logs() as logs:
        for arm in Arm:
            log = logs / f"{arm.name.lower()}.log"
            arms[arm] = run_arm(arm, settings, pair, log, partial(show, str(arm)))
    return Comparison(settings, pair, arms)


def pair_of(name: str, show: Show) -> Pair:
    """The checkpoints of the drafter ``name`` and of its target, made where the cache has none.

    Raises:
        DemoError: there is no such drafter, or a checkpoint is missing or damaged.
        SetupError: ``AV-CACHE-DIR`` if the cache cannot be written.
    """
    folder = require(name)  # before a target is converted for it
    if find(name).own_target:
        return Pair(checkpoint(name, folder), None)
    target = smollm2(lambda done: show("target", "converting SmolLM2-135M-Instruct", done))
    return Pair(target, checkpoint(name, target))
