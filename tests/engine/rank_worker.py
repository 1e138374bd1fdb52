"""One of two ranks that decide with vLLM's manager, before a patch and as it is installed.

Arguments: the rank, the file by which the ranks find each other, the file for the result, the test
that goes to vLLM with the patch, and the manager's source without the patch.
"""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType


def load(name: str, path: str) -> ModuleType:
    """The module that ``path`` is, under a name that nobody imports."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def of_files(rank: str, sizes: dict[str, int]) -> tuple[bool, str]:
    """Whether this rank reads and writes files for all, and the rank that said something to it."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state

    from vllm_av.seams import ranks

    with set_current_vllm_config(VllmConfig()):
        parallel_state.initialize_model_parallel(**sizes)
        try:
            return ranks.is_first(), ranks.from_first(rank)
        finally:
            parallel_state.destroy_model_parallel()


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
    found["first"] = {layout: of_files(rank, test.LAYOUTS[layout]) for layout in test.LAYOUTS}
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
