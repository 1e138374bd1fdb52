"""One question to the check, asked in a process of its own: ``python -m vllm_av.doctor.ask``.

Arguments are who is asked about attention backends (``table``, ``auto``), the version of vLLM or an
empty word, and what follows ``vllm serve``. A server that runs has passed vLLM's own reading of
its flags, so one that is given twice is no mistake: the last one counts.

Rule: the answer on standard output is one JSON object, as of ``vllm-av check --json``.
"""

import json
import sys

from vllm_av.errors import VllmAvError
from vllm_av.preflight.check import Ways, check
from vllm_av.preflight.question import Question


def main(argv: list[str]) -> None:
    """Ask, and print the answer."""
    ways, version, *arguments = argv
    try:
        question = Question(tuple(arguments), vllm=version or None, strict=False)
        answer = check(question, Ways(ways)).as_dict()
    except VllmAvError as error:
        answer = {"error": error.as_dict()}
    print(json.dumps(answer, default=str))


if __name__ == "__main__":
    main(sys.argv[1:])
