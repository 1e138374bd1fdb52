"""Check the estimators' kernels on a GPU, with torch, Triton and NumPy alone.

    PYTHONPATH=. python -m tests.gpu

in a checkout of this repository, on a machine with a CUDA device; neither vLLM nor this package
need be installed. It prints a line a check and ends with 1 if one failed. With pytest the same
checks are ``pytest tests/gpu``.

    .venv/bin/python -m tests.gpu --device cpu

runs them through the CPU engine, which knows no graphs and no waiting. That they run, and that the
numbers agree, can be seen without a GPU; what a GPU's compiler makes of the kernels cannot.
"""

import argparse
import sys
import time
import traceback

import torch


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    device = torch.device(parser.parse_args().device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("no CUDA device here; --device cpu runs the checks through the CPU engine")
        return 2
    if device.type == "cpu":
        from vllm_av.cpu import install

        torch.set_num_threads(1)
        install()
    import triton

    from tests.gpu.checks import CHECKS

    where = torch.cuda.get_device_name() if device.type == "cuda" else "CPU engine"
    print(f"{where}; torch {torch.__version__}, Triton {triton.__version__}")
    failed = 0
    for check in CHECKS:
        start = time.perf_counter()
        try:
            found = check(device)
        except Exception:
            traceback.print_exc()
            failed += 1
            found = "FAILED"
        name = check.__name__.replace("_", " ")
        print(f"{name:<18} {found:<28} {time.perf_counter() - start:6.1f} s", flush=True)
    print(f"{len(CHECKS) - failed} of {len(CHECKS)} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
