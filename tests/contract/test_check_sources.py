"""Every place in vLLM's source that a rule names is there, in each supported vLLM that has it."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import vllm_av
from tests.contract.vllm_source import tree_of
from vllm_av.drafters import SUPPORTED

RULES = Path(vllm_av.__file__).parent / "preflight/rules"
PLACE = re.compile(r'"([a-z0-9_]+\.py):([A-Za-z0-9_.]+)"')
PLACES = sorted(
    {found.groups() for file in RULES.glob("*.py") for found in PLACE.finditer(file.read_text())}
)


@cache
def names(version: str, file: str) -> frozenset[str]:
    """Every function and class, methods as ``Class.method``, in the files of that name."""
    found = set()
    for path in tree_of(version).rglob(file):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                methods = (each for each in node.body if isinstance(each, ast.FunctionDef))
                found |= {node.name, *(f"{node.name}.{each.name}" for each in methods)}
            elif isinstance(node, ast.FunctionDef):
                found.add(node.name)
    return frozenset(found)


def test_there_are_places() -> None:
    assert len(PLACES) > 8


@pytest.mark.parametrize("version", SUPPORTED)
@pytest.mark.parametrize(("file", "name"), PLACES)
def test_the_place_is_there(file: str, name: str, version: str) -> None:
    assert name in names(version, file)


@pytest.mark.parametrize("version", SUPPORTED)
def test_folders_of_specialized_decodes_are_there(version: str) -> None:
    text = (RULES / "features.py").read_text()
    folders = set(re.findall(r'"(models/[a-z0-9_/]+)"', text))
    assert len(folders) == 2
    for folder in folders:
        # Since 0.33.
        assert (tree_of(version) / folder).is_dir() == (version != "0.32.0"), folder
