# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Ranks on one CPU machine gather through shared memory, whatever the dtype."""

import os
import subprocess
import sys

import pytest
import torch

from vllm.platforms import current_platform

if not current_platform.is_cpu():
    pytest.skip("CPU only", allow_module_level=True)

WORLD_SIZE = 2
DTYPES = [torch.float32, torch.bfloat16, torch.int32, torch.int64]


def local_tensor(rank, dtype):
    numbers = torch.arange(12).reshape(3, 4)
    if dtype == torch.int64:
        # Neither half of such a number may be lost.
        numbers = numbers + (1 << 40) - (numbers % 2) * (1 << 62)
    elif dtype == torch.int32:
        numbers = -numbers  # whose bits are those of a NaN
    return (numbers * (rank + 1)).to(dtype)


@torch.inference_mode()
def gather_all(rank, init_file):
    """What one of the ranks runs."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed.parallel_state import (
        get_tp_group,
        init_distributed_environment,
        initialize_model_parallel,
    )

    current_platform.import_kernels()
    os.environ["VLLM_DIST_IDENT"] = init_file.replace("/", "-")
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(
            WORLD_SIZE, rank, f"file://{init_file}", local_rank=rank, backend="gloo"
        )
        initialize_model_parallel(tensor_model_parallel_size=WORLD_SIZE)
        group = get_tp_group()
        communicator = group.device_communicator.dist_module
        assert type(communicator).__name__ == "_CPUSHMDistributed"
        for dtype in DTYPES:
            tensors = [local_tensor(r, dtype) for r in range(WORLD_SIZE)]
            for dim in (0, 1):
                try:
                    gathered = group.all_gather(tensors[rank], dim=dim)
                except NotImplementedError:
                    continue
                if torch.equal(gathered, torch.cat(tensors, dim=dim)):
                    print(dtype, dim)


@pytest.fixture(scope="module")
def gathered(tmp_path_factory):
    """What each rank has gathered well, a line for each case."""
    folder = tmp_path_factory.mktemp("ranks")
    logs = [folder / f"{rank}.log" for rank in range(WORLD_SIZE)]
    ranks = []
    try:
        for rank, log in enumerate(logs):
            command = [sys.executable, __file__, str(rank), str(folder / "init")]
            with log.open("w") as output:
                ranks.append(subprocess.Popen(command, stdout=output))
        assert [process.wait(timeout=600) for process in ranks] == [0] * WORLD_SIZE
    finally:
        for process in ranks:
            process.kill()
    return [log.read_text().splitlines() for log in logs]


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_gather(dtype, dim, gathered):
    for lines in gathered:
        assert f"{dtype} {dim}" in lines


if __name__ == "__main__":
    gather_all(int(sys.argv[1]), sys.argv[2])
