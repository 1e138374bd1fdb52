"""The keys of a speculative config, and what is made of their values, are each vLLM's own.

By the fields of ``SpeculativeConfig`` in vLLM's source, and by what vLLM makes of whole command
lines.
"""

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.contract.configs import Case, ask
from tests.contract.vllm_source import CONFIG, NEWEST_OFTEN, tree_of
from tests.unit.preflight.rules.checkpoints import write
from vllm_av.config.block import BLOCK
from vllm_av.drafters import SUPPORTED
from vllm_av.errors import CheckError
from vllm_av.preflight.answer import Answer
from vllm_av.preflight.check import Ways, check
from vllm_av.preflight.flags.values import EXECUTORS
from vllm_av.preflight.question import Question
from vllm_av.preflight.reasons import Verdict
from vllm_av.preflight.spec_keys import COMMON, OWN


def rows(version: str) -> Mapping[str, tuple[Any, str]]:
    return {**COMMON, **OWN[version]}


def parsed(version: str, file: str) -> ast.Module:
    return ast.parse((tree_of(version) / file).read_text())


def literal(module: ast.Module, name: str) -> set[str]:
    """The names that ``name = Literal[...]`` lists."""
    (value,) = (
        node.value
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )
    return {str(each.value) for each in ast.walk(value) if isinstance(each, ast.Constant)}


def listed(version: str, key: str) -> set[str]:
    """The names that a key takes by this package."""
    parts = (rows(version)[key][0], *get_args(rows(version)[key][0]))
    return {name for part in parts for name in get_args(part) if isinstance(name, str)} | {
        name for name in parts if isinstance(name, str)
    }


@pytest.mark.parametrize("version", SUPPORTED)
def test_the_keys_are_the_fields_of_vllms_config(version: str) -> None:
    (kind,) = (
        node
        for node in parsed(version, CONFIG).body
        if isinstance(node, ast.ClassDef) and node.name == "SpeculativeConfig"
    )
    fields = {
        node.target.id
        for node in kind.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert fields - {BLOCK} == set(rows(version))


@pytest.mark.parametrize("version", SUPPORTED)
def test_the_names_are_vllms(version: str) -> None:
    config = parsed(version, CONFIG)
    assert listed(version, "draft_sample_method") == literal(config, "DraftSampleMethod")
    assert listed(version, "rejection_sample_method") == literal(config, "RejectionSampleMethod")
    kernel = parsed(version, "config/kernel.py")
    assert listed(version, "moe_backend") == literal(kernel, "MoEBackend")
    parallel = parsed(version, "config/parallel.py")
    assert set(EXECUTORS) == literal(parallel, "DistributedExecutorBackend")


CHANGES: tuple[tuple[str, object], ...] = (
    ("code_revision", "x"),
    ("disable_eagle_block_drop", 1),
    ("disable_lookahead_block_hashes", 1),
    ("draft-sample-method", "probabilistic"),
    ("draft_lm_head_quantization", "fp8"),
    ("draft_lm_head_quantization", "x"),
    ("draft_load_config", "x"),
    ("draft_load_config", {}),
    ("draft_parallel_config", 7),
    ("draft_sample_method", "x"),
    ("draft_sample_method", None),
    ("draft_tensor_parallel_size", 0),
    ("Draft-Sample-Method", "greedy"),
    ("dspark_draft_topk", 0),
    ("enforce_eager", "maybe"),
    ("enforce_eager", "no"),
    ("enforce_eager", None),
    ("fly_entropy_threshold", "0.5"),
    ("fly_entropy_threshold", -1),
    ("fly_window_size", 2),
    ("index_share_for_mtp_iteration", "x"),
    ("kv_cache_dtype", None),
    ("max_model_len", "10"),
    ("max_model_len", 0),
    ("method", 0),
    ("moe_backend", "aiter_triton_mxfp4_mxfp4"),
    ("moe_backend", "nosuch"),
    ("model", 7),
    ("num_spec_tokens", 3),
    ("num_speculative_tokens", "4"),
    ("num_speculative_tokens", "4.0"),
    ("num_speculative_tokens", "x"),
    ("num_speculative_tokens", None),
    ("num_speculative_tokens", True),
    ("num_speculative_tokens_per_batch_size", "x"),
    ("num_speculative_tokens_per_batch_size", [[1, 2, 3]]),
    ("parallel_drafting", "off"),
    ("parallel_drafting", "x"),
    ("parallel_drafting", 2),
    ("parallel_drafting", None),
    ("quantization", 7),
    ("rejection_sample_method", "block"),
    ("rejection_sample_method", "fly"),
    ("rejection_sample_method", "synthetic"),
    ("rejection_sample_method", "x"),
    ("revision", 7),
    ("suffix_decoding_max_tree_depth", 2.5),
    ("synthetic_acceptance_length", 2),
    ("synthetic_acceptance_rates", ["x"]),
    ("target_model_config", {}),
    ("tensor_parallel_size", 1),
    ("use_heterogeneous_vocab", "off"),
    ("xpress_topc", -1),
)
"""Of a config that starts: a key, and what it is to be."""


@pytest.mark.parametrize("version", NEWEST_OFTEN)
def test_what_vllm_refuses_is_refused_and_nothing_else(version: str, tmp_path: Path) -> None:
    model, draft = write(tmp_path, "llama-3.1-8b"), write(tmp_path, "llama-3-8b-eagle")
    config = json.loads((Path(draft) / "config.json").read_text())
    specs: dict[str, dict[str, object]] = {
        f"{key} = {value!r}": {key: value} for key, value in CHANGES
    }
    for lacks in ("architectures", "model_type"):
        folder = tmp_path / lacks
        folder.mkdir()
        kept = {key: value for key, value in config.items() if key != lacks}
        (folder / "config.json").write_text(json.dumps(kept))
        specs |= {
            f"{method} without {lacks}": {"method": method, "model": str(folder)}
            for method in ("eagle", "draft_model")
        }
    base = {"method": "eagle", "model": draft, "num_speculative_tokens": 3}
    argv = {
        name: (
            *("--model", model, "--max-num-seqs", "32", "--speculative-config"),
            json.dumps({**base, "enable_adaptive_verification": True, **changes}),
        )
        for name, changes in specs.items()
    }
    theirs = ask(version, "h100", [Case(each) for each in argv.values()], tmp_path / "cache")
    for (name, args), told in zip(argv.items(), theirs, strict=True):
        answer = answered(args, version)
        assert (answer is None) == (told.settled is None), (name, told.refusal)
        if answer is not None and told.settled is not None:
            assert answer.verdict is Verdict.YES, name
            count = answer.asked.setup.draft.num_speculative_tokens
            assert count == told.settled["num_speculative_tokens"], name


def answered(args: tuple[str, ...], version: str) -> Answer | None:
    """None where the question is wrong."""
    try:
        question = Question(args, gpu="h100", vllm=version, environment={})
        return check(question, Ways.TABLE)
    except CheckError:
        return None
