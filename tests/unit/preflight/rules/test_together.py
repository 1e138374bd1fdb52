"""However much is wrong, all of it is told at once, and nothing twice."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.preflight.rules.applied import applied
from tests.unit.preflight.rules.cases import CASES, FEW, Case
from tests.unit.preflight.rules.conftest import Check
from vllm_av.errors import Code, VllmAvError
from vllm_av.preflight.reasons import ReasonCode as C
from vllm_av.preflight.reasons import Verdict, Weight

R, K = Weight.REFUSAL, Weight.CAUTION
BLOCK = "adaptive_verification_config"
DSPARK = "qwen3-8b-dspark-block7"


def test_five_faults_are_five_reasons(checked: Check) -> None:
    case = Case(
        "five",
        (C.RUNNER, C.GRAPHS, C.LORA, C.LOCAL_ARGMAX, C.VARLEN),
        R,
        ("-O1", "--enable-lora", "--attention-backend=FLASH_ATTN", *FEW),
        spec={"use_local_argmax_reduction": True},
        environment={"VLLM_USE_V2_MODEL_RUNNER": "0"},
        gpu="a100",
    )
    assert [reason.code for reason in checked(case).reasons] == list(case.codes)


def test_everything_that_one_command_line_can_have_wrong(checked: Check) -> None:
    args = (
        "-O0",
        "--enforce-eager",
        "--enable-lora",
        "-pp=2",
        "-tp=2",
        "--enable-dbo",
        "--enable-return-routed-experts",
        "--return-sampling-mask",
        "--enable-batch-sharded-sampling",
        "--attention-backend=FLASHINFER",
    )
    case = Case(
        "all",
        (),
        R,
        args,
        spec={
            "method": "dspark",
            "use_local_argmax_reduction": True,
            BLOCK: {"scorer": "confidence_head", "exploration": 2, "no_such_key": 1},
        },
        target="qwen3-30b-a3b",
        draft="qwen3-8b-dspark-block7",
        gpu="rtx5090",
        environment={
            "VLLM_USE_V2_MODEL_RUNNER": "0",
            "VLLM_ADAPTIVE_VERIFICATION_PROFILE_REAL_ROWS": "0",
        },
        installed=("0.32.0", "applied"),
    )
    answer = checked(case)
    assert answer.verdict is Verdict.NO
    assert [reason.code for reason in answer.reasons] == [
        C.RUNNER,
        C.RUNNER,
        C.GRAPHS,
        C.LORA,
        C.PIPELINE,
        C.ROUTED_EXPERTS,
        C.SAMPLING_MASK,
        C.SHARDED_SAMPLING,
        C.SCORER,
        C.LOCAL_ARGMAX,
        Code.CONFIG_RANGE,
        Code.CONFIG_KEY,
        C.LENS,
        C.VARLEN,
        C.LOGITS,
        C.MOE,
    ]
    assert len({str(reason) for reason in answer.reasons}) == len(answer.reasons)


def test_all_fixes_together_mend_it(checked: Check, tmp_path: Path) -> None:
    case = Case(
        "many",
        (),
        R,
        (
            "-O0",
            "--enforce-eager",
            "--enable-lora",
            "-pp=2",
            "--enable-dbo",
            "--return-sampling-mask",
            "--attention-backend=FLASH_ATTN",
        ),
        spec={"use_local_argmax_reduction": True},
        gpu="a100",
        environment={"VLLM_USE_V2_MODEL_RUNNER": "0"},
    )
    question = case.question(tmp_path)
    # A fix may bring to light what the fault had hidden, but every round is shorter.
    counts = []
    while reasons := [each for each in checked(case, question).reasons if each.changes]:
        counts.append(len(reasons))
        assert len(counts) < 4, reasons
        for reason in reasons:
            question = applied(question, reason.changes)
    assert counts[0] == 8
    answer = checked(case, question)
    assert (answer.verdict, answer.reasons) == (Verdict.YES, ())


@pytest.mark.parametrize(
    ("block", "codes"),
    [
        ({"scorer": "no_such_scorer"}, [Code.CONFIG_SCORER]),
        ({"scorer": "confidence_head"}, [Code.CONFIG_METHOD]),
        (
            {"exploration": "much", "estimator": {"ridge": 1}},
            [Code.CONFIG_TYPE, Code.CONFIG_UNUSED],
        ),
        ({"estimator": {"initial_intercepts": [0, 0]}}, [Code.CONFIG_COUNT]),
        ([], [Code.CONFIG_OBJECT]),
    ],
)
def test_mistakes_in_the_block_have_their_own_codes(
    block: object, codes: list[Code], checked: Check
) -> None:
    answer = checked(Case("block", (), R, spec={BLOCK: block}))
    assert [(reason.code, reason.weight) for reason in answer.reasons] == [
        (code, R) for code in codes
    ]


def test_a_block_beside_a_flag_that_is_off(checked: Check) -> None:
    case = Case("off", (), R, spec={BLOCK: {}, "enable_adaptive_verification": False})
    assert [reason.code for reason in checked(case).reasons] == [Code.CONFIG_OFF]


def test_a_misspelt_key_is_told_and_taken_as_it_is_meant(checked: Check) -> None:
    spec = {"enable_adaptive_verification": None, "enable_adaptive_verifcation": True}
    (reason,) = checked(Case("misspelt", (), R, spec=spec)).reasons
    assert reason.code is Code.CONFIG_KEY
    assert reason.fix == "write enable_adaptive_verification"


def test_a_block_that_an_unpatched_vllm_cannot_read(checked: Check) -> None:
    case = Case("unpatched", (), R, spec={BLOCK: {}}, installed=("0.33.0", "pristine"))
    (reason,) = checked(case).reasons
    assert (reason.code, reason.weight) == (Code.CONFIG_UNPATCHED, R)


def test_a_method_without_estimates_is_told_once(checked: Check) -> None:
    case = Case("ngram", (), R, spec={"method": "ngram", BLOCK: {"zzz": 1}}, draft=None)
    assert [reason.code for reason in checked(case).reasons] == [C.DRAFTER, Code.CONFIG_KEY]


def test_the_scorer_is_told_with_its_reason(checked: Check) -> None:
    def scorer(**more: object) -> tuple[str | None, str]:
        found = checked(Case("scorer", (), R, **more)).judgement.scorer  # type: ignore[arg-type]
        return found.name, found.reason

    dspark = {"spec": {"method": "dspark"}, "draft": "qwen3-8b-dspark-block7"}
    head = ("confidence_head.proj.weight",)
    assert scorer(**dspark, tensors=head) == (
        "confidence_head",
        "the drafter's checkpoint has a confidence head",
    )
    assert scorer(**dspark)[0] == "online_estimator"
    for block in ({}, {"scorer": "confidence_head"}):
        case = Case("unseen", (), R, spec={"method": "dspark", BLOCK: block}, draft=DSPARK)
        unseen = checked(replace(case, tensors=None))
        assert (unseen.judgement.scorer.name, unseen.judgement.scorer.known) == (None, False)
        (line,) = (line for line in unseen.lines() if line.startswith("scorer: "))
        assert line.startswith("scorer: not known here (confidence_head where ")
        assert "; fetch its model.safetensors.index.json, or the one file" in line
    named = {"method": "dspark", BLOCK: {"scorer": "pooled_estimator"}}
    assert scorer(spec=named, draft="qwen3-8b-dspark-block7", tensors=head) == (
        "pooled_estimator",
        "named in adaptive_verification_config; auto is confidence_head",
    )
    assert scorer(spec={"method": "ngram"}, draft=None)[0] is None


def test_a_server_that_goes_on_with_a_fixed_k_is_noted(checked: Check) -> None:
    spec = {BLOCK: {"on_unsupported": "fixed_k"}}
    answer = checked(Case("fixed", (), R, (*FEW, "--enable-lora"), spec=spec))
    assert [reason.code for reason in answer.reasons] == [C.LORA]
    assert answer.notes[0].startswith('on_unsupported is "fixed_k": vLLM starts all the same')


@pytest.mark.parametrize(
    ("args", "block", "installed", "code"),
    [
        ((), {"sorcer": "auto"}, "applied", "AV-CONFIG-KEY"),
        (("--attention-backend", "FLASHMLA"), {}, "applied", "AV-CHECK-BACKEND"),
        ((), {}, "pristine", "AV-CONFIG-UNPATCHED"),
    ],
)
def test_what_a_fixed_k_does_not_help_against_is_noted(
    args: tuple[str, ...], block: dict[str, Any], installed: str, code: str, checked: Check
) -> None:
    spec = {BLOCK: {"on_unsupported": "fixed_k", **block}}
    words = (*FEW, "--enable-lora", *args)
    answer = checked(Case("fixed", (), R, words, spec=spec, installed=("0.33.0", installed)))
    assert answer.notes == (f'on_unsupported is "fixed_k": it does not help against {code}',)


def test_what_nothing_cures_ends_with_what_runs(checked: Check) -> None:
    def fixes(block: dict[str, Any] | None, installed: str = "applied") -> set[str]:
        case = Case("sparse", (), R, target="deepseek-v3.2", spec={BLOCK: block}, gpu="h100")
        answer = checked(replace(case, installed=("0.33.0", installed)))
        told = [each for each in answer.reasons if each.code is C.VARLEN]
        assert told
        assert not any(each.changes for each in told)
        return {(each.fix or "").partition("such layers on h100")[2] for each in told}

    off = 'remove "enable_adaptive_verification"'
    fixed = f'"{BLOCK}.on_unsupported": "fixed_k"'
    (end,) = fixes(None)
    assert end.endswith(f"; {off}, or set {fixed}")
    (end,) = fixes({"scorer": "auto"})
    assert end.endswith(f'; {off} and "{BLOCK}", or set {fixed}')
    (end,) = fixes(None, "pristine")
    assert end.endswith(f"; {off}")
    (end,) = fixes({"on_unsupported": "fixed_k"})
    assert "remove" not in end
    # Layers that no backend takes at all are refused without adaptive verification too.
    case = Case("chunks", (), R, (*FEW, "-pcp", "2"), target="llama-4-scout", gpu="rtx5090")
    assert not any("fixed_k" in str(each) for each in checked(case).reasons)


RANKS = (*FEW, "-tp", "2")
REAL_ROWS = "VLLM_ADAPTIVE_VERIFICATION_PROFILE_REAL_ROWS"


def test_what_the_series_mends_is_told_of_a_vllm_without_it(checked: Check) -> None:
    case = Case("ranks", (), K, RANKS, target="qwen3-30b-a3b")
    assert checked(case).reasons == ()
    for state, words in {"pristine": "not patched", "outdated": "patches outdated"}.items():
        answer = checked(replace(case, installed=("0.33.0", state)))
        assert answer.asked.vllm.known == f"vLLM 0.33.0 here, {words}"
        (reason,) = answer.reasons
        assert reason.code == C.VERSION
        assert reason.fix == "run `vllm-av patch apply`"
        assert ", 2 ranks that decide each for itself " in reason.found
        assert reason.found.endswith("measured on padding, which experts skip")
    one = replace(case, args=FEW, target="llama-3.1-8b", installed=("0.33.0", "pristine"))
    (reason,) = checked(one).reasons
    assert reason.found.endswith("its refusals one at a time")


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, []),
        ({REAL_ROWS: "1"}, []),
        ({REAL_ROWS: "0"}, [C.MOE]),
        ({REAL_ROWS: "0", "VLLM_MOE_SKIP_PADDING": "0"}, []),
        ({REAL_ROWS: "1", "VLLM_MOE_SKIP_PADDING": "1"}, []),
    ],
)
def test_costs_of_experts_are_wrong_only_where_padding_is_profiled_and_skipped(
    environment: dict[str, str], told: list[C], checked: Check
) -> None:
    case = Case("experts", (), K, target="qwen3-30b-a3b", environment=environment)
    assert [reason.code for reason in checked(case).reasons] == told


def test_graphs_are_not_proposed_beyond_one_chunk_of_logits(checked: Check, tmp_path: Path) -> None:
    """2^30 bytes hold 2,092 rows of 128,256 logits; what is beyond is always trimmed."""
    case = Case("many", (), K, ("--max-num-seqs", "640"))
    question = case.question(tmp_path)
    first, logits = checked(case, question).reasons
    assert (first.code, logits.code) == (C.CAPTURE, C.LOGITS)
    assert first.fix == (
        "write --max-cudagraph-capture-size 2096, which costs memory and start-up time, "
        "or --max-num-seqs 64"
    )
    assert checked(case, applied(question, first.changes)).reasons == (logits,)


def test_the_bound_of_graphs_is_told_in_tokens(checked: Check) -> None:
    answer = checked(Case("bound", (), R, (*FEW, "--attention-backend=FLASHINFER"), gpu="b200"))
    (line,) = (line for line in answer.lines() if "of full attention (num" in line)
    assert "takes trimmed lengths, graphs for 1 to 8 tokens per request; " in line


def test_an_answer_says_the_same_to_people_and_to_programs(checked: Check) -> None:
    for case in CASES:
        answer = checked(case)
        text = "\n".join(answer.lines())
        said = json.loads(json.dumps(answer.as_dict()))
        assert text.startswith(f"{said['verdict']}: adaptive verification of ")
        assert [each["code"] for each in said["reasons"]] == list(case.codes)
        for each in said["reasons"]:
            assert f"[{each['code']}] {each['asked']} ({each['where']}): {each['found']}" in text
            assert each["fix"] in text
        for layer in said["layers"]:
            assert layer["chosen"] is None or layer["chosen"]["source"] in text
        assert text.isprintable() or set(text) - {"\n"} == {c for c in text if c.isprintable()}


FAULTS = (
    {"args": ("--enforce-eager",)},
    {"args": ("-O1",)},
    {"args": ("--enable-lora",)},
    {"args": ("-pp", "2")},
    {"args": ("--enable-dbo",)},
    {"args": ("--return-sampling-mask",)},
    {"args": ("--attention-backend", "FLASHINFER")},
    {"args": ("--kv-cache-dtype", "fp8")},
    {"args": ("-dcp", "2", "-tp", "8")},
    {"spec": {"use_local_argmax_reduction": True}},
    {
        "spec": {"method": "dspark", BLOCK: {"scorer": "confidence_head"}},
        "draft": "qwen3-8b-dspark-block7",
    },
    {"environment": {"VLLM_USE_V2_MODEL_RUNNER": "0"}},
    {"target": "deepseek-v3"},
    {"target": "gemma-3-1b"},
)


@pytest.mark.parametrize("seed", range(40))
def test_no_fix_brings_a_refusal_to_light_that_was_not_told(
    seed: int, checked: Check, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    parts: dict[str, Any] = {"args": FEW, "spec": {}}
    for fault in draw.sample(FAULTS, draw.randint(2, 5)):
        for name, value in fault.items():
            if name == "args":
                parts["args"] += value
            elif name == "spec":
                parts["spec"] = {**parts["spec"], **value}
            else:
                parts[name] = value
    gpu = draw.choice(("a100", "h100", "b200", "rtx5090"))
    case = Case("drawn", (), R, gpu=gpu, **parts)
    question = case.question(tmp_path)
    first = checked(case, question)
    told = {reason.code for reason in first.reasons if reason.weight is not K}
    left = first
    while mendable := [each for each in left.reasons if each.changes and each.weight is not K]:
        question = applied(question, draw.choice(mendable).changes)
        after = checked(case, question)
        codes = {reason.code for reason in after.reasons if reason.weight is not K}
        assert codes <= told, (question, after.reasons)
        assert len(codes) <= len({each.code for each in left.reasons})
        assert after.reasons != left.reasons
        left = after


def test_layers_that_nothing_can_verify_hide_nothing(checked: Check) -> None:
    case = Case("chunks", (), R, (*FEW, "-pcp", "2"), target="llama-4-scout", gpu="rtx5090")
    told = [reason.code for reason in checked(case).reasons if reason.weight is R]
    # Of the layers that attend within chunks, of those of full attention, and of the drafter's.
    assert sorted(told) == [C.BACKEND, C.BACKEND, C.BACKEND, C.VARLEN]


def test_one_backend_for_each_kind_where_none_does_for_all(checked: Check, tmp_path: Path) -> None:
    case = Case(
        "kinds",
        (),
        R,
        target="deepseek-v3",
        gpu="mi300x",
    )
    question = case.question(tmp_path)
    (reason,) = checked(case, question).reasons
    # All layers through it would not do: the drafter has no MLA.
    kinds = {"mla_attention": "ROCM_AITER_MLA"}
    assert reason.fix == f"write --attention-config.backend_per_kind '{json.dumps(kinds)}'"
    assert checked(case, applied(question, reason.changes)).reasons == ()


def test_what_is_named_for_the_target_alone(checked: Check, tmp_path: Path) -> None:
    case = Case(
        "named",
        (),
        R,
        (*FEW, "--attention-backend", "TRITON_MLA"),
        target="deepseek-v3",
        gpu="mi300x",
    )
    question = case.question(tmp_path)
    target, drafter = checked(case, question).reasons
    assert (target.code, drafter.code) == (C.VARLEN, C.BACKEND)
    assert target.fix == (
        'write --attention-backend ROCM_AITER_MLA and set "attention_backend": "ROCM_ATTN"'
    )
    assert checked(case, applied(question, target.changes)).reasons == ()


JUNK = (None, True, 0, -1, 2.5, 10**30, "", "x", "auto", [], {}, [1], {"a": 1}, "\0", "\u00e9")
KEYS = {
    "attention-config": ("backend", "backend_per_kind", "flash_attn_version", "use_non_causal"),
    "compilation-config": ("mode", "cudagraph_mode", "cudagraph_capture_sizes", "pass_config"),
    "kv-transfer-config": ("kv_connector", "kv_connector_extra_config"),
    "additional-config": ("decode_backend",),
    "hf-overrides": ("num_attention_heads", "vocab_size", "architectures", "layer_types"),
    "speculative-config": ("method", "model", "num_speculative_tokens", BLOCK, "attention_backend"),
}


@pytest.mark.parametrize("seed", range(150))
def test_whatever_is_in_a_config_the_answer_is_reasons_or_one_line(
    seed: int, checked: Check, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    name = draw.choice(list(KEYS))
    values = {key: draw.choice(JUNK) for key in draw.sample(KEYS[name], min(2, len(KEYS[name])))}
    gpu = draw.choice(("h100", "b200", "mi300x", "cpu", "xpu", "t4"))
    target = draw.choice(("llama-3.1-8b", "deepseek-v3.2", "qwen3-next-80b-a3b", "gpt-oss-120b"))
    more = () if name == "speculative-config" else (f"--{name}", json.dumps(values))
    spec = values if name == "speculative-config" else {}
    case = Case("junk", (), R, (*FEW, *more), spec=spec, target=target, gpu=gpu)
    said, code = _said(case, checked)
    assert all("\n" not in line for line in said)
    assert code is None or code.startswith(("AV-QUESTION-", "AV-CONFIG-"))


def _said(case: Case, checked: Check) -> tuple[list[str], Code | None]:
    try:
        return list(checked(case).lines()), None
    except VllmAvError as error:
        return [str(error)], error.code
