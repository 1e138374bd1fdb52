"""The whole check: a question in, a verdict with every reason out.

Rule: nothing is loaded and nothing is imported of vllm or torch in this process; whoever is asked
about attention backends is named in the answer.
"""

import sys
from collections.abc import Iterator
from enum import StrEnum

from vllm_av.config.block import BLOCK
from vllm_av.errors import CheckError, Code
from vllm_av.preflight.answer import Answer
from vllm_av.preflight.backends import gpus
from vllm_av.preflight.backends.asked import AskedCapabilities
from vllm_av.preflight.backends.flashinfer import FlashInfer, installed
from vllm_av.preflight.backends.table import TableCapabilities
from vllm_av.preflight.question import Asked, Question, ask
from vllm_av.preflight.reasons import Verdict, Weight
from vllm_av.preflight.rules import Judgement, judge
from vllm_av.preflight.rules.switched_off import not_of_adaptive


class Ways(StrEnum):
    """Who is asked about attention backends."""

    AUTO = "auto"
    """The installed vLLM's own classes where it is the one that is asked about, else the table."""
    TABLE = "table"
    VLLM = "vllm"


def check(question: Question, ways: Ways = Ways.AUTO) -> Answer:
    """Answer the question.

    Raises:
        CheckError: it is wrong.
    """
    asked = ask(question)
    if ways is Ways.VLLM and not asked.vllm.here:
        raise CheckError(
            Code.QUESTION_FLAG,
            given=f"--capabilities is vllm, and {asked.vllm.known}",
            allowed="the classes of the installed vLLM",
            fix="ask the table: --capabilities table",
        )
    table = f"this package's table of vLLM {asked.setup.vllm}"
    flashinfer = _flashinfer(question, asked)
    if asked.setup.gpu is None:
        judgement, source = judge(asked.setup, None), "nobody: the GPU is not known"
    elif ways is Ways.VLLM or (ways is Ways.AUTO and asked.vllm.here):
        classes = AskedCapabilities(python=sys.executable)
        judgement = judge(asked.setup, classes, flashinfer)
        source = "the installed vLLM's own classes"
        if classes.failed is not None:
            source = f"{table}, since the classes could not be asked: {classes.failed}"
    else:
        judgement, source = (
            judge(asked.setup, TableCapabilities(asked.setup.vllm), flashinfer),
            table,
        )
    return Answer(asked, judgement, source, flashinfer, tuple(_notes(question, asked, judgement)))


def _flashinfer(question: Question, asked: Asked) -> FlashInfer | None:
    """The installed one where it counts: for NVIDIA's GPUs, and, where none is installed, only if
    it is this machine that is asked about; for another one it may be there."""
    gpu = asked.setup.gpu
    if gpu is None or gpu.platform != "cuda":
        return None
    found = installed()
    return found if found.version is not None or question.gpu == gpus.AUTO else None


def _notes(question: Question, asked: Asked, judgement: Judgement) -> Iterator[str]:
    for flag in asked.flags.dropped:
        yield f"{flag} is given twice, and the last one counts"
    block = asked.setup.speculative.get(BLOCK)
    gpu = asked.setup.gpu
    if question.gpu == gpus.AUTO and gpu is not None and gpu.platform == "cpu":
        yield "no --gpu: answered for this machine's CPU, for which the vLLM here is built"
    fixed = isinstance(block, dict) and block.get("on_unsupported") == "fixed_k"
    if fixed and judgement.verdict is Verdict.NO:
        rest = not_of_adaptive(judgement.reasons)
        if rest:
            yield f'on_unsupported is "fixed_k": it does not help against {", ".join(rest)}'
        elif all(reason.weight is not Weight.UNKNOWN for reason in judgement.reasons):
            yield (
                'on_unsupported is "fixed_k": vLLM starts all the same, with a fixed number of '
                "drafts and one warning"
            )
