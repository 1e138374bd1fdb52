"""Answers from the classes of the vLLM that is installed beside a Python, asked in one process.

That process pretends the GPU; it costs the import of vLLM, so that all layers of a question are
asked at once. Where it cannot answer (no vLLM, one that cannot be made to pretend, no time), the
table answers, and the note of each answer says why.

Rule: an answer always comes, and says which of the two gave it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vllm_av.preflight.backends.table import TableCapabilities
from vllm_av.preflight.backends.wire import plain, to_answer
from vllm_av.preflight.capabilities import Candidate, LayerAnswer
from vllm_av.preflight.facts import LayerGroup, Setup

LIMIT_SECONDS = 60.0
"""How long the classes may take; they need some seconds, on a cold disk ten times that."""


@dataclass
class AskedCapabilities:
    """The classes of the vLLM of ``python``.

    Args:
        python: an interpreter; vllm_av must be importable there too.
        limit: seconds for one question.
    """

    python: str = sys.executable
    limit: float = LIMIT_SECONDS
    failed: str | None = None
    """Why the last question was not answered by the classes; None where it was."""
    _known: dict[str, dict[str, LayerAnswer]] = field(default_factory=dict)

    def answer(self, setup: Setup, group: LayerGroup) -> LayerAnswer:
        """What that vLLM would do with these layers; the first call asks for all of the target."""
        key = json.dumps(plain(setup), sort_keys=True)
        if key not in self._known:
            groups = dict.fromkeys((*setup.target.groups, group))
            self._known[key] = self._ask(setup, tuple(groups))
        answers = self._known[key]
        name = repr(group)
        if name not in answers and self.failed is None:
            answers |= self._ask(setup, (group,))
        if name in answers:
            return answers[name]
        found = TableCapabilities(setup.vllm).answer(setup, group)
        return _noted(found, f"not asked: {self.failed}")

    def _ask(self, setup: Setup, groups: tuple[LayerGroup, ...]) -> dict[str, LayerAnswer]:
        (found,) = self.ask([(setup, groups)]) or ((),)
        return {repr(group): each for group, each in zip(groups, found, strict=False)}

    def ask(
        self, questions: Sequence[tuple[Setup, Sequence[LayerGroup]]]
    ) -> list[tuple[LayerAnswer, ...]]:
        """The classes' answers to questions about one GPU; none where ``failed`` says why."""
        said = self._run([{"setup": plain(s), "groups": plain(g)} for s, g in questions])
        self.failed = said.get("failed")
        return [tuple(map(to_answer, each)) for each in said.get("answers", ())]

    def _run(self, questions: list[dict[str, Any]]) -> dict[str, Any]:
        try:
            done = subprocess.run(
                [self.python, "-m", "vllm_av.preflight.backends.ask"],
                input=json.dumps(questions),
                env=_environment(questions[0]["setup"]["environment"]),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"no answer within {self.limit:g} s"}
        except OSError as error:
            return {"failed": f"{self.python}: {error.strerror}"}
        try:
            said: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            last = lines[-1] if lines else f"exit status {done.returncode}"
            return {"failed": last[:200]}
        return said


def _environment(asked: dict[str, str]) -> dict[str, str]:
    """This process', with the variables that the question names, and nothing that vLLM loads."""
    quiet = {
        "VLLM_PLUGINS": "",  # a plugin may change what is asked, and has its own start-up
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    read = {name: value for name, value in asked.items() if name.startswith("VLLM_")}
    return {**os.environ, **read, **quiet}


def _noted(found: LayerAnswer, note: str) -> LayerAnswer:
    def noted(each: Candidate) -> Candidate:
        return replace(each, note=f"{each.note}; {note}" if each.note else note)

    return replace(
        found,
        chosen=None if found.chosen is None else noted(found.chosen),
        without=None if found.without is None else noted(found.without),
        candidates=tuple(map(noted, found.candidates)),
    )
