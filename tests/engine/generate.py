"""Generation in a process of its own: a job on standard input, what came of it in a file.

The environment chooses the model runner and whether the engine's core has its own process.
"""

import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    from vllm import LLM, SamplingParams

    job = json.load(sys.stdin)
    llm = LLM(**job["arguments"])
    requests = [{"prompt_token_ids": prompt} for prompt in job["prompts"]]
    v2 = llm.llm_engine.vllm_config.use_v2_model_runner
    result: dict[str, Any] = {"v2": v2, "tokens": [], "error": None}
    try:
        for temperature in job["temperatures"]:
            params = SamplingParams(
                temperature=temperature, max_tokens=job["max_tokens"], ignore_eos=True
            )
            outputs = llm.generate(requests, params, use_tqdm=False)
            result["tokens"].append([list(output.outputs[0].token_ids) for output in outputs])
    except Exception as error:  # which one, is for the test to say
        result["error"] = f"{type(error).__name__}: {error}"
    Path(sys.argv[1]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
