"""Answers from the classes of the vLLM that is installed beside a Python, asked in one process.

That process pretends the GPU; it costs the import of vLLM, so that all layers of a question are
asked at once. Where it cannot answer (no vLLM, one that cannot be made to pretend, no time), the
table answers, and the note of each answer says why.

Rule: an answer always comes, and says which of the two gave it; what lies in the folder that the
check is called from is not imported.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vllm_av.config.text import printable
from vllm_av.preflight.backends.table import TableCapabilities
from vllm_av.preflight.backends.wire import fact, plain
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
    """Why the classes did not answer the last question that they were asked; None if they did."""
    _known: dict[str, dict[str, LayerAnswer]] = field(default_factory=dict)
    _refused: dict[str, str] = field(default_factory=dict)

    def answer(self, setup: Setup, group: LayerGroup) -> LayerAnswer:
        """What that vLLM would do with these layers; the first call asks for all of the target."""
        key, name = json.dumps(plain(setup), sort_keys=True), repr(group)
        known = self._known.setdefault(key, {})
        if name not in known and key not in self._refused:
            groups = (group,) if known else tuple(dict.fromkeys((*setup.target.groups, group)))
            answers = self.ask([(setup, groups)])
            if self.failed is None:
                known |= {repr(each): found for each, found in zip(groups, answers[0], strict=True)}
            else:
                self._refused[key] = self.failed
        if name in known:
            return known[name]
        found = TableCapabilities(setup.vllm).answer(setup, group)
        return _noted(found, f"not asked: {self._refused[key]}")

    def ask(
        self, questions: Sequence[tuple[Setup, Sequence[LayerGroup]]]
    ) -> list[tuple[LayerAnswer, ...]]:
        """The classes' answers to questions about one GPU; none where ``failed`` says why."""
        said = self._run([{"setup": plain(s), "groups": plain(g)} for s, g in questions])
        if isinstance(said, str):
            self.failed = said
            return []
        self.failed = None
        return [tuple(fact(LayerAnswer, one) for one in each) for each in said]

    def _run(self, questions: list[dict[str, Any]]) -> list[list[Any]] | str:
        """The answers as they came, or why there are none."""
        try:
            done = subprocess.run(
                [_absolute(self.python), "-m", "vllm_av.preflight.backends.ask", str(os.getpid())],
                input=json.dumps(questions),
                env=_environment(questions[0]["setup"]["environment"]),
                cwd=os.sep,  # a clone of vLLM, or a torch.py, where the user stands is no library
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"no answer within {self.limit:g} s"
        except OSError as error:
            return f"{self.python}: {error.strerror}"
        try:
            said = json.loads(done.stdout)
        except ValueError:
            if done.returncode == 0:  # whatever it wrote, that is not why
                return "the process ended without an answer"
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            return printable(lines[-1]) if lines else f"exit status {done.returncode}"
        if isinstance(said, dict) and "answers" in said:
            found: list[list[Any]] = said["answers"]
            return found
        why = said.get("failed") if isinstance(said, dict) else None
        return "no answer" if why is None else printable(str(why))


def _absolute(python: str) -> str:
    """A path that holds in another folder too; a bare name is looked for on PATH."""
    return os.path.abspath(python) if os.sep in python else python


def _environment(asked: dict[str, str]) -> dict[str, str]:
    """This process', with the variables that the question names, and nothing that vLLM loads."""
    quiet = {
        # The working folder comes first on the path of no process, those that vLLM starts included.
        "PYTHONSAFEPATH": "1",
        "VLLM_PLUGINS": "",  # a plugin may change what is asked, and has its own start-up
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    read = {name: value for name, value in asked.items() if name.startswith("VLLM_")}
    found = {**os.environ, **read, **quiet}
    if "PYTHONPATH" in found:
        # An empty part is the folder that Python runs in; the others are meant from here.
        parts = filter(None, found["PYTHONPATH"].split(os.pathsep))
        found["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, parts))
    return found


def _noted(found: LayerAnswer, note: str) -> LayerAnswer:
    def noted(each: Candidate) -> Candidate:
        return replace(each, note=f"{each.note}; {note}" if each.note else note)

    return replace(
        found,
        chosen=None if found.chosen is None else noted(found.chosen),
        without=None if found.without is None else noted(found.without),
        candidates=tuple(map(noted, found.candidates)),
    )
