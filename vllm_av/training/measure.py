"""How many drafts the target accepts, from the counters of the real engine.

bfloat16, five drafts a step, drafts drawn from the draft's distribution, every draft verified.
Prompts are those that training never saw.

``accepted`` is accepted drafts a step, without the token that the target adds itself; ``given`` is
each position's acceptance given that all earlier ones were accepted. Of a drafter with a confidence
head, ``said`` is what that said of it on the average, and ``seen`` how many were accepted, of
``labels`` drafts of each position: those that the target accepted, and the first that it did not.
The head is only asked where verification is adaptive, so there it is, at costs for which every
draft is worth it.

``measure NAME`` keeps the rows with what they were measured by, and of which weights.

Rule: a figure comes from vLLM's own counters and buffers, never from the trainer's idea of the
engine, and is not rounded.
"""

import json
import os
from pathlib import Path
from typing import Any

from vllm_av.demo.checkpoint import smollm2
from vllm_av.demo.completion import completed
from vllm_av.demo.drafter import carried, find
from vllm_av.demo.drafter import require as require_carried
from vllm_av.demo.figures import Drafts
from vllm_av.demo.probe import Probe
from vllm_av.demo.settings import ENVIRONMENT
from vllm_av.training.finished import check
from vllm_av.training.prompts import HELD_OUT_EACH, WORKLOADS, held_out
from vllm_av.training.whole import of_file, write_json

STEPS = 5
"""Drafts a step."""
TEMPERATURES = (0.0, 1.0)
_NEW_TOKENS = 64
_DTYPE = "bfloat16"
_TOKENS_A_STEP = 1024
_OWN = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # A short cost profile, which is replaced.
    "VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN": "32",
}
_ASKED = {
    "enable_adaptive_verification": True,
    "adaptive_verification_config": {"scorer": "confidence_head"},
}


def measure(
    name: str,
    checkpoint: Path | None = None,
) -> list[dict[str, Any]]:
    """A row for each workload and temperature.

    Args:
        name: a key of ``vllm_av.demo.drafter.DRAFTERS``.
        checkpoint: folder of the drafter, finished or not; by default the package's.

    Returns:
        ``{"workload", "temperature", "steps", "accepted", "given"}`` each, and of a drafter with a
        confidence head ``"labels", "said", "seen"``.
    """
    os.environ.update(ENVIRONMENT | _OWN)
    from vllm import LLM, SamplingParams

    drafter = find(name)
    folder = checkpoint or carried(name)
    target = folder if drafter.own_target else smollm2()
    speculation = {
        "method": drafter.method,
        "num_speculative_tokens": STEPS,
        "draft_sample_method": "probabilistic",
    }
    if not drafter.own_target:
        draft = completed(folder, target, without=drafter.without)
        speculation |= {"model": str(draft)} | (_ASKED if _has_head(draft) else {})
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    llm = LLM(
        str(target),
        dtype=_DTYPE,
        seed=0,
        enforce_eager=True,
        enable_prefix_caching=False,
        max_model_len=min(1024, config["max_position_embeddings"]),
        max_num_seqs=24,
        max_num_batched_tokens=_TOKENS_A_STEP,
        kv_cache_memory_bytes=1 << 30,
        speculative_config=speculation,
        disable_log_stats=False,  # the counters are part of the statistics
    )
    tokenizer = llm.get_tokenizer()
    probe = _probe_of(llm) if "enable_adaptive_verification" in speculation else None
    rows = []
    for workload in WORKLOADS:
        prompts = [
            {"prompt_token_ids": _encoded(tokenizer, workload, text)}
            for _, text in held_out(workload)
        ]
        for temperature in TEMPERATURES:
            before = _counters(llm)
            if probe is not None:
                probe.reset()
            parameters = [
                SamplingParams(temperature=temperature, seed=seed, max_tokens=_NEW_TOKENS)
                for seed in range(len(prompts))
            ]
            llm.generate(prompts, parameters, use_tqdm=False)
            counted = [now - then for now, then in zip(_counters(llm), before, strict=True)]
            rows.append({"workload": workload, "temperature": temperature} | figures(counted))
            if probe is not None:
                rows[-1] |= calibration(probe.drafts)
            print(line(rows[-1]), flush=True)
    return rows


def figures(counted: list[int]) -> dict[str, Any]:
    """Steps, then accepted drafts at each position, as the figures of a row."""
    steps, *accepted = counted
    return {
        "steps": steps,
        "accepted": sum(accepted) / max(steps, 1),
        "given": [
            now / max(then, 1) for now, then in zip(accepted, [steps, *accepted], strict=False)
        ],
    }


def calibration(drafts: Drafts) -> dict[str, Any]:
    """What was said of the drafts that have a label, and seen, by position; all were verified."""
    assert drafts.verified == drafts.scheduled
    return {
        "labels": [each.labels for each in drafts.positions],
        "said": [each.predicted / max(each.labels, 1) for each in drafts.positions],
        "seen": [each.accepted / max(each.labels, 1) for each in drafts.positions],
    }


def line(row: dict[str, Any]) -> str:
    """``row`` for a reader."""
    given = " ".join(f"{value:.3f}" for value in row["given"])
    return (
        f"{row['workload']:<13} temperature {row['temperature']:.0f}: {row['accepted']:.3f} "
        f"accepted a step; given the earlier ones {given}; {row['steps']} steps"
    )


def run(work: Path, name: str, checkpoint: Path | None) -> None:
    """Measure ``name`` and keep the rows in ``work``, in a file for each checkpoint's weights.

    Raises:
        DemoError: ``AV-DEMO-CHECKPOINT`` if there is no such drafter, before vLLM is imported.
    """
    folder = checkpoint or require_carried(name)
    check(find(name), folder)
    weights = of_file(folder / "model.safetensors")
    rows = measure(name, checkpoint)
    path = kept(work, name, weights)
    write_json(path, {"weights": weights} | settings() | {"rows": rows})
    print(f"kept in {path}")


def kept(work: Path, name: str, weights: str) -> Path:
    """Where :func:`run` keeps its rows of the weights with this SHA-256."""
    return work / f"acceptance-{name}-{weights[:12]}.json"


def settings() -> dict[str, Any]:
    """How :func:`measure` measures, by vLLM's names; ``prompts`` are those of a workload."""
    from vllm import __version__

    return {
        "vllm": __version__,
        "dtype": _DTYPE,
        "num_speculative_tokens": STEPS,
        "prompts": HELD_OUT_EACH,
        "max_tokens": _NEW_TOKENS,
    }


def _encoded(tokenizer: Any, workload: str, text: str) -> list[int]:
    if workload != "code":
        messages = [{"role": "user", "content": text}]
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ids: list[int] = tokenizer.encode(text)
    return ids


def _has_head(draft: Path) -> bool:
    config = json.loads((draft / "config.json").read_text(encoding="utf-8"))
    return bool(config.get("enable_confidence_head"))


def _probe_of(llm: Any) -> Probe:
    """What counts its drafts, all of them verified from now on: that costs nothing."""
    core = llm.llm_engine.engine_core.engine_core
    runner = core.model_executor.driver_worker.worker.model_runner
    runner.adaptive_verification.set_cost_curves([(1, 0.0)], [(1, 1.0), (_TOKENS_A_STEP, 1.0)])
    return Probe(llm.llm_engine)


def _counters(llm: Any) -> list[int]:
    """Steps with drafts, then accepted drafts at each position, since the engine's start."""
    known = {metric.name: metric for metric in llm.get_metrics()}
    steps = known["vllm:spec_decode_num_drafts"].value
    return [steps, *known["vllm:spec_decode_num_accepted_tokens_per_pos"].values]
