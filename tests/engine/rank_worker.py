"""One of two ranks that decide with vLLM's manager, before a patch and as it is installed.

Arguments: the rank, the file by which the ranks find each other, the file for the result, the test
that goes to vLLM with the patch, and the manager's source without the patch.
"""

import importlib.util
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any


def load(name: str, path: str) -> ModuleType:
    """The module that ``path`` is, under a name that nobody imports."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def at_start(test: ModuleType, rank: str, layout: str, device: Any) -> dict[str, Any]:
    """What this rank does before requests, beside another one.

    ``files``: whether it reads and writes them for all, and the rank that told it something;
    ``warm``: the confidences after the warm-up, which were its number before;
    ``refused``: what it raises where the first rank refuses the costs, and after how many seconds.
    """
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state

    from vllm_av.seams import ranks

    def refuse(policy: Any, capture_sizes: list[int]) -> None:
        raise LookupError(f"rank {rank} refuses them")

    policy = test.adaptive_verification.GreedyDraftBudgetPolicy
    refusing = type("Refusing", (policy,), {"load_cost_curves": refuse})
    with set_current_vllm_config(VllmConfig()):
        parallel_state.initialize_model_parallel(**test.LAYOUTS[layout])
        manager = test.make_manager(device)
        found: dict[str, Any] = {"files": (ranks.is_first(), ranks.from_first(rank))}
        manager._confidence_probs.fill_(float(rank))
        manager.warm_up()
        found["warm"] = manager._confidence_probs.unique().tolist()
        manager._policy = refusing()
        begun = time.monotonic()
        try:
            next(manager.batches_to_profile([]))
        except (LookupError, RuntimeError) as error:
            found["refused"] = str(error), time.monotonic() - begun
        parallel_state.destroy_model_parallel()
    return found


def main() -> None:
    rank, init_file, result, test_file, unpatched_file = sys.argv[1:]
    test = load("ranks_of_a_batch", test_file)
    device = test.connect(int(rank), init_file)
    installed = test.adaptive_verification
    found = {}
    for name, manager in {
        "without the patch": load("unpatched_manager", unpatched_file),
        "installed": installed,
    }.items():
        test.adaptive_verification = manager
        found[name] = test.decide_all(int(rank), device)
    found["start"] = {layout: at_start(test, rank, layout, device) for layout in test.LAYOUTS}
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
