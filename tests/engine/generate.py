"""Greedy generation in a process of its own: a job on standard input, tokens in a file.

The environment chooses the model runner and whether the engine's core has its own process.
"""

import json
import sys
from pathlib import Path


def main() -> None:
    from vllm import LLM, SamplingParams

    job = json.load(sys.stdin)
    llm = LLM(**job["arguments"])
    params = SamplingParams(temperature=0, max_tokens=job["max_tokens"], ignore_eos=True)
    requests = [{"prompt_token_ids": prompt} for prompt in job["prompts"]]
    outputs = llm.generate(requests, params, use_tqdm=False)
    tokens = [list(output.outputs[0].token_ids) for output in outputs]
    v2 = llm.llm_engine.vllm_config.use_v2_model_runner
    Path(sys.argv[1]).write_text(json.dumps({"v2": v2, "tokens": tokens}))


if __name__ == "__main__":
    main()
