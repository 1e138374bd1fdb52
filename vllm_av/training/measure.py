"""How many drafts the target accepts, from the counters of the real engine.

bfloat16, five drafts a step, drafts drawn from the draft's distribution, no adaptive verification:
every draft is verified. Prompts are those that training never saw.

``accepted`` is accepted drafts a step, without the token that the target adds itself; ``given`` is
each position's acceptance given that all earlier ones were accepted.

Rule: a figure comes from vLLM's own counters, never from the trainer's idea of the engine.
"""

import json
import os
from pathlib import Path
from typing import Any

from vllm_av.demo.checkpoint import smollm2
from vllm_av.demo.completion import completed
from vllm_av.demo.drafter import carried, find
from vllm_av.demo.settings import ENVIRONMENT
from vllm_av.training.prompts import WORKLOADS, held_out
from vllm_av.training.whole import of_file, write_json

STEPS = 5
TEMPERATURES = (0.0, 1.0)
_NEW_TOKENS = 64


def measure(
    name: str,
    checkpoint: Path | None = None,
) -> list[dict[str, Any]]:
    """A row for each workload and temperature.

    Args:
        name: a key of ``vllm_av.demo.drafter.DRAFTERS``.
        checkpoint: folder of the drafter, finished or not; by default the package's.

    Returns:
        ``{"workload", "temperature", "steps", "accepted", "given"}`` each.
    """
    os.environ.update(ENVIRONMENT | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"})
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
        speculation["model"] = str(completed(folder, target, without=drafter.without))
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    llm = LLM(
        str(target),
        dtype="bfloat16",
        seed=0,
        enforce_eager=True,
        enable_prefix_caching=False,
        max_model_len=min(1024, config["max_position_embeddings"]),
        max_num_seqs=24,
        max_num_batched_tokens=1024,
        kv_cache_memory_bytes=1 << 30,
        speculative_config=speculation,
        disable_log_stats=False,  # the counters are part of the statistics
    )
    tokenizer = llm.get_tokenizer()
    rows = []
    for workload in WORKLOADS:
        prompts = [
            {"prompt_token_ids": _encoded(tokenizer, workload, text)}
            for _, text in held_out(workload)
        ]
        for temperature in TEMPERATURES:
            before = _counters(llm)
            parameters = [
                SamplingParams(temperature=temperature, seed=seed, max_tokens=_NEW_TOKENS)
                for seed in range(len(prompts))
            ]
            llm.generate(prompts, parameters, use_tqdm=False)
            counted = [now - then for now, then in zip(_counters(llm), before, strict=True)]
            rows.append({"workload": workload, "temperature": temperature} | figures(counted))
            print(line(rows[-1]), flush=True)
    return rows


def figures(counted: list[int]) -> dict[str, Any]:
    """Steps, then accepted drafts at each position, as the figures of a row."""
    steps, *accepted = counted
    return {
        "steps": steps,
        "accepted": round(sum(accepted) / max(steps, 1), 3),
        "given": [
            round(now / max(then, 1), 3)
            for now, then in zip(accepted, [steps, *accepted], strict=False)
        ],
    }


def line(row: dict[str, Any]) -> str:
    """``row`` for a reader."""
    given = " ".join(f"{value:.3f}" for value in row["given"])
    return (
        f"{row['workload']:<13} temperature {row['temperature']:.0f}: {row['accepted']:.3f} "
        f"accepted a step; given the earlier ones {given}; {row['steps']} steps"
    )


def run(work: Path, name: str, checkpoint: Path | None) -> None:
    """Measure ``name`` and keep the rows in ``work``, in a file for each checkpoint's weights."""
    weights = of_file((checkpoint or carried(name)) / "model.safetensors")
    rows = [{"weights": weights} | row for row in measure(name, checkpoint)]
    path = work / f"acceptance-{name}-{weights[:12]}.json"
    write_json(path, rows)
    print(f"kept in {path}")


def _encoded(tokenizer: Any, workload: str, text: str) -> list[int]:
    if workload != "code":
        messages = [{"role": "user", "content": text}]
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ids: list[int] = tokenizer.encode(text)
    return ids


def _counters(llm: Any) -> list[int]:
    """Steps with drafts, then accepted drafts at each position, since the engine's start."""
    known = {metric.name: metric for metric in llm.get_metrics()}
    steps = known["vllm:spec_decode_num_drafts"].value
    return [steps, *known["vllm:spec_decode_num_accepted_tokens_per_pos"].values]
