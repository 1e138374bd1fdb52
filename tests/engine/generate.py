"""Greedy generation in a process of its own: a job on standard input, what came of it in a file.

The environment chooses the model runner and whether an engine's core has its own process.
"""

import gc
import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    job = json.load(sys.stdin)
    results = [_generate(arguments, job) for arguments in job["engines"]]
    Path(sys.argv[1]).write_text(json.dumps(results))


def _generate(arguments: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    from vllm import LLM, SamplingParams

    params = SamplingParams(
        temperature=0, max_tokens=job["max_tokens"], ignore_eos=True, detokenize=False
    )
    requests = [{"prompt_token_ids": prompt} for prompt in job["prompts"]]
    llm = None
    try:
        llm = LLM(**arguments)
        outputs = llm.generate(requests, params, use_tqdm=False)
    except Exception as error:  # which one, is for the test to say
        return {"error": f"{type(error).__name__}: {error}"}
    else:
        tokens = [list(output.outputs[0].token_ids) for output in outputs]
        return {"v2": llm.llm_engine.vllm_config.use_v2_model_runner, "tokens": tokens}
    finally:
        del llm  # and its processes
        gc.collect()


if __name__ == "__main__":
    main()
