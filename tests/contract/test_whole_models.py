"""Published models, from the command line to the verdict: the check against vLLM itself.

vLLM settles the command line, builds the target, lets its selector choose for each layer and looks
at what it got, all on a GPU that is not there. The check has only ``config.json`` and its table.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.contract import flashinfer_python
from tests.contract.configs import Case, Outcome, ask
from tests.contract.quotes import quoted
from vllm_av.preflight.check import Answer, Ways, check
from vllm_av.preflight.question import Question
from vllm_av.preflight.reasons import ReasonCode, Weight

CONFIGS = Path(__file__).parents[1] / "configs"
OF_LAYERS = {ReasonCode.BACKEND, ReasonCode.LENS, ReasonCode.VARLEN}
NO_BACKEND = "No valid attention backend found"
FEW = (
    "command-r7b",
    "deepseek-v2-lite",
    "deepseek-v3.2",
    "falcon-h1-1.5b",
    "gemma-3-4b",
    "gpt-oss-120b",
    "jamba-1.5-mini",
    "lfm2-1.2b",
    "llama-3.1-8b",
    "llama-4-scout",
    "mimo-v2-flash",
    "mixtral-8x7b",
    "qwen2.5-vl-7b",
    "smollm3-3b",
)
MORE = (
    "deepseek-v3",
    "exaone-4-32b",
    "falcon-7b",
    "falcon-mamba-7b",
    "gemma-2-9b",
    "gemma-3-1b",
    "glm-4.5-air",
    "glm-4.7-flash",
    "glm-5",
    "granite-4-h-tiny",
    "llava-1.5-7b",
    "mamba-codestral-7b",
    "mimo-7b",
    "minimax-m2",
    "mistral-7b-v0.1",
    "nemotron-nano-9b-v2",
    "olmo-3-7b",
    "phi-3-mini-4k",
    "qwen2.5-7b",
    "qwen3-0.6b",
    "qwen3-30b-a3b",
    "qwen3-8b",
    "step-3.5-flash",
    "zamba2-2.7b",
)
"""All that can be built without a compiler for CUDA or code beside the weights."""

_WIDE = [
    pytest.param((version, gpu, (*FEW, *MORE)), marks=pytest.mark.full)
    for gpu in ("a100", "h100", "b200", "rtx5090")
    for version in ("0.32.0", "0.33.0")
]
Built = tuple[str, str, dict[str, tuple[Case, Outcome]]]


def _case(name: str, drafters: Path) -> Case:
    """A server with an EAGLE head, which every target takes as far as its config goes."""
    config = json.loads((CONFIGS / name / "config.json").read_text())
    text: dict[str, Any] = config.get("text_config", config)
    head = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": text.get("hidden_size", 4096),
        "intermediate_size": 512,
        "num_hidden_layers": 1,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "vocab_size": text.get("vocab_size", 32000),
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    }
    own = drafters / name
    own.mkdir()
    (own / "config.json").write_text(json.dumps(head))
    speculative = {
        "method": "eagle",
        "model": str(own),
        "num_speculative_tokens": 5,
        "enable_adaptive_verification": True,
    }
    model = str(CONFIGS / name)
    words = ("--model", model, "--tokenizer", model, "--skip-tokenizer-init")
    more = ("--max-model-len", "1024", "--speculative-config", json.dumps(speculative))
    return Case((*words, *more), build=True)


@pytest.fixture(
    scope="module",
    params=[("0.33.0", "h100", FEW), *_WIDE],
    ids=lambda each: "-".join((*each[:2], str(len(each[2])))),
)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    version, gpu, names = request.param
    drafters = tmp_path_factory.mktemp("drafters")
    cases = [_case(name, drafters) for name in names]
    # Blackwell's backends are FlashInfer's.
    packages = None if gpu == "h100" else flashinfer_python.folder()
    answers = ask(version, gpu, cases, tmp_path_factory.mktemp("cache"), packages)
    return version, gpu, dict(zip(names, zip(cases, answers, strict=True), strict=True))


def _checked(case: Case, version: str, gpu: str) -> Answer:
    return check(Question(case.argv, gpu=gpu, vllm=version, environment={}), Ways.TABLE)


@pytest.mark.timeout(900)
def test_every_layer_gets_the_backend_that_the_check_says(built: Built) -> None:
    version, gpu, models = built
    wrong = {}
    for name, (case, answer) in models.items():
        assert answer.layers, (name, answer.refusal)
        theirs: Counter[str] = Counter()
        for backend, _, count in answer.layers:
            # An enum's name, or its own name for itself.
            theirs[backend.removesuffix("_ATTN")] += count
        ours: Counter[str] = Counter()
        for layers in _checked(case, version, gpu).judgement.layers:
            taken = layers.chosen.name if layers.chosen else "none"
            ours[taken.removesuffix("_ATTN")] += layers.group.count
        # vLLM stops at the first layer that it has no backend for.
        stopped = NO_BACKEND in (answer.refusal or "")
        if stopped != ("none" in ours) or (ours != theirs and not stopped):
            wrong[name] = (dict(ours), dict(theirs))
    assert wrong == {}


def test_the_check_refuses_what_vllm_refuses_once_the_layers_are_there(built: Built) -> None:
    version, gpu, models = built
    wrong = {}
    for name, (case, answer) in models.items():
        reasons = _checked(case, version, gpu).reasons
        ours = {reason.code for reason in reasons if reason.weight is Weight.REFUSAL}
        theirs = quoted(answer.refusal, version) if answer.refusal else set()
        # The release says it layer by layer, of each layer the first, with the weights loaded.
        late: set[ReasonCode] = set()
        for _, words, _ in answer.layers or ():
            late |= quoted(words, version)
        if NO_BACKEND in (answer.refusal or ""):
            right = ReasonCode.BACKEND in ours and ours <= OF_LAYERS
        else:
            right = ours == theirs and ours <= OF_LAYERS
            right = right and late <= theirs and bool(late) == bool(ours)
        if not right:
            wrong[name] = (ours, theirs, late, answer.refusal)
    assert wrong == {}
    assert {
        code for case, answer in models.values() for code in quoted(answer.refusal or "", version)
    }
