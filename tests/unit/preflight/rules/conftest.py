"""A check that sees the vLLM, the GPU and the FlashInfer of a test, not those of this machine."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.preflight.rules.cases import Case
from vllm_av.preflight.backends import gpus
from vllm_av.preflight.check import Answer, Ways, check
from vllm_av.preflight.question import Question

Check = Callable[..., Answer]


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Check:
    """Answers a case, or the question that is made of it."""

    def run(case: Case, question: Question | None = None) -> Answer:
        here = None if case.here is None else gpus.named(case.here)
        monkeypatch.setattr("vllm_av.preflight.installed._look", lambda: case.installed)
        monkeypatch.setattr(gpus, "here", lambda: here)
        if case.flashinfer is not None:
            _install(tmp_path / "site", case.flashinfer)
            monkeypatch.syspath_prepend(tmp_path / "site")
        return check(case.question(tmp_path) if question is None else question, Ways.TABLE)

    return run


def _install(site: Path, source: str) -> None:
    for folder in ("flashinfer", "flashinfer_python-0.5.0.dist-info"):
        (site / folder).mkdir(parents=True, exist_ok=True)
    (site / "flashinfer/decode.py").write_text(source)
    metadata = "Metadata-Version: 2.1\nName: flashinfer-python\nVersion: 0.5.0\n"
    (site / "flashinfer_python-0.5.0.dist-info/METADATA").write_text(metadata)
