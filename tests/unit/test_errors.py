"""The exception tree and its codes."""

import ast
import pickle
import re
from pathlib import Path

import pytest

from vllm_av import errors
from vllm_av.errors import Code, DemoError, KernelError, PatchError, SetupError, VllmAvError
from vllm_av.preflight.reasons import ReasonCode

ROOT = Path(errors.__file__).parents[1]


def _error() -> SetupError:
    return SetupError(Code.USAGE, "given\nin two  lines", "allowed", "fix")


def test_an_error_is_one_line_with_its_code_first() -> None:
    assert str(_error()) == "[AV-USAGE] given in two lines; allowed; fix"


def test_an_error_as_a_dict_keeps_its_parts() -> None:
    assert _error().as_dict() == {
        "code": "AV-USAGE",
        "given": "given\nin two  lines",
        "allowed": "allowed",
        "fix": "fix",
    }


def test_an_error_survives_the_way_between_processes() -> None:
    copy = pickle.loads(pickle.dumps(_error()))
    assert type(copy) is SetupError
    assert copy.as_dict() == _error().as_dict()


@pytest.mark.parametrize("kind", [SetupError, PatchError, KernelError, DemoError])
def test_every_kind_is_caught_by_the_root(kind: type[VllmAvError]) -> None:
    with pytest.raises(VllmAvError):
        raise kind(Code.USAGE, "g", "a", "f")


@pytest.mark.parametrize("code", Code)
def test_a_code_is_spelt_as_its_name(code: Code) -> None:
    assert code.value == "AV-" + code.name.replace("_", "-")
    assert re.fullmatch(r"AV(-[A-Z0-9]+)+", code.value)


def test_every_code_says_what_it_means() -> None:
    module = ast.parse(Path(errors.__file__).read_text())
    body = next(n.body for n in module.body if isinstance(n, ast.ClassDef) and n.name == "Code")
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.Assign):
            assert isinstance(following, ast.Expr), ast.unparse(statement)
            assert isinstance(following.value, ast.Constant), ast.unparse(statement)


@pytest.mark.parametrize("code", Code)
def test_every_code_is_raised_somewhere(code: Code) -> None:
    sources = [*(ROOT / "vllm_av").rglob("*.py"), *(ROOT / "ci").rglob("*.py")]
    texts = [path.read_text() for path in sources if path.name != "errors.py"]
    assert any(re.search(rf"\bCode\.{code.name}\b|{code.value}\b", text) for text in texts)


def test_the_readme_names_no_code_that_does_not_exist() -> None:
    named = set(re.findall(r"AV(?:-[A-Z0-9]+)+", (ROOT / "README.md").read_text()))
    assert named <= {*Code, *ReasonCode}
