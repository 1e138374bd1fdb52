"""``python -m vllm_av.preflight.backends.ask PARENT``: ask the classes of this Python's vLLM.

Reads a list of ``{"setup": ..., "groups": [...]}`` as JSON from standard input, all for one GPU;
writes ``{"answers": [[...], ...]}`` or ``{"failed": "..."}`` to standard output, and nothing else:
what vLLM prints there goes to standard error. It ends with the process PARENT, whatever ends that.

Rule: one GPU, one process; the platform is pretended before anything of vLLM's is imported.
"""

import ctypes
import json
import os
import signal
import sys
from typing import Any

from vllm_av.preflight.backends.wire import fact, plain
from vllm_av.preflight.facts import LayerGroup, Setup


def main() -> None:
    """Answer what standard input asks."""
    _end_with(int(sys.argv[1]))
    answer_to = os.dup(1)
    os.dup2(2, 1)
    given = json.load(sys.stdin)
    with os.fdopen(answer_to, "w", encoding="utf-8") as out:
        json.dump(answers(given), out)
    # vLLM's modules start threads and exit hooks that nobody waits for here
    sys.stderr.flush()
    os._exit(0)


_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def _end_with(parent: int) -> None:
    """Let the kernel end this process when that one, which waits for it, is gone.

    An import of torch may hold the interpreter for seconds: no thread of its own would do.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it went before that was said
        os._exit(1)


def answers(given: list[dict[str, Any]]) -> dict[str, Any]:
    """The answers to a list of questions, or why there is none."""
    questions = [
        (fact(Setup, each["setup"]), [fact(LayerGroup, one) for one in each["groups"]])
        for each in given
    ]
    device = questions[0][0].gpu
    assert device is not None
    try:
        from vllm_av.preflight.backends.classes import ClassCapabilities
        from vllm_av.preflight.backends.pretend import pretend

        pretend(device)
        ask = ClassCapabilities()
        found = [[ask.answer(setup, group) for group in groups] for setup, groups in questions]
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
    return {"answers": plain(found)}


if __name__ == "__main__":
    main()
