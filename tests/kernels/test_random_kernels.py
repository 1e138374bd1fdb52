"""Random kernels of integers, compiled and interpreted side by side.

Rule: a kernel is made from its seed alone, so a failure can be made again. Loop counters are turned
into tensors before ``//`` and ``%``: the interpreter has Python's numbers there, which round down.
"""

import importlib.util
import random
from pathlib import Path
from typing import Any

import pytest
import torch

HEAD = """import triton
import triton.language as tl


@triton.jit
def early(x, k, n):
    if k > n:
        return n - k
    v = tl.load(x + (k & 31))
    if v < 0:
        return v * 2
    return v


@triton.jit
def kernel(x, y, out, n, m, N: tl.constexpr, M: tl.constexpr):
    pid = tl.program_id(0)
    i = tl.arange(0, N)
"""


class Maker:
    """Writes the body of one kernel."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.lines: list[str] = []
        self.blocks, self.scalars = ["i"], ["pid", "n", "m"]
        self.names = 0
        for _ in range(10):
            self.statement(1)
        for k, name in enumerate(self.blocks[:4]):
            self.put(1, f"tl.store(out + (pid * 8 + {k}) * N + i, {name})")
        for k, name in enumerate(self.scalars[:4]):
            self.put(1, f"tl.store(out + (pid * 8 + 4 + {k}) * N, {name})")

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def name(self, kind: list[str]) -> str:
        self.names += 1
        kind.append(f"v{self.names}")
        return kind[-1]

    def scalar(self, depth: int = 0) -> str:
        pick = self.pick
        if depth > 2 or pick.random() < 0.35:
            return pick.choice([*self.scalars, str(pick.randint(-20, 20))])
        a, c = self.scalar(depth + 1), self.scalar(depth + 1)
        return pick.choice(
            [
                *(f"({a} {op} {c})" for op in "+-*&|^"),
                f"(({a} + 0 * pid) {pick.choice(['//', '%', '>>'])} {pick.choice([1, 3, 7])})",
                f"tl.minimum({a}, {c} + pid)",
                f"tl.where({a} > {c} + pid, {a} + m, {c} - n)",
            ]
        )

    def block(self, depth: int = 0) -> str:
        pick = self.pick
        if depth > 2 or pick.random() < 0.3:
            return pick.choice(self.blocks)
        a, c = self.block(depth + 1), self.block(depth + 1)
        wide = f"({a})[:, None] * M + {pick.choice(['(tl.arange(0, M) + n)', 'tl.arange(0, M)'])}"
        return pick.choice(
            [
                *(f"({a} {op} {c})" for op in "+-*&|^"),
                *(f"({a} {op} {self.scalar(2)})" for op in "+-*"),
                f"({a} {pick.choice(['//', '%', '>>'])} {pick.choice([1, 3, 7])})",
                f"(tl.arange(0, 1) * 3 + {a})",
                f"tl.maximum({a}, {c})",
                f"tl.where({self.test()}, {a}, {c})",
                f"tl.cumsum({a} & 15, 0)",
                f"tl.sum({wide}[None, :], axis=1)",
                f"tl.sum(tl.interleave({a}, {c}).reshape(N, 2), axis=1)",
            ]
        )

    def test(self) -> str:
        limit = f"{self.scalar(2)} + pid"
        return self.pick.choice(
            [
                f"(i < {limit})",
                f"(i + {self.scalar(2)} <= {limit})",
                f"(({self.block(2)}) > {limit})",
            ]
        )

    def statement(self, depth: int) -> None:
        pick, pointer = self.pick, self.pick.choice("xy")
        at = pick.choice(["i", "i + 3", "(N - 1 - i)", f"(({self.block(1)}) & 127)"])
        mask = f", mask={self.test()}" if pick.random() < 0.6 else ""
        # Lanes of one store must not meet at one address: their order is not Triton's to say.
        own = pick.choice(["i", "i + 3", "(N - 1 - i)"])
        match pick.randrange(9):
            case 0 | 1:
                text = self.block()
                self.put(depth, f"{self.name(self.blocks)} = {text}")
            case 2:
                other = ", other=-1" if mask else ""
                mask = f"{mask} & (i >= 0)" if mask else ""
                text = f"tl.load({pointer} + {at}{mask}{other})"
                self.put(depth, f"{self.name(self.blocks)} = {text}")
            case 3 | 4:
                self.put(depth, f"tl.store({pointer} + {own}, {self.block()}{mask})")
            case 5:
                text = f"{pick.choice(['tl.max', 'tl.min', 'tl.argmax', 'tl.sum'])}"
                text += f"(({self.block()}) & 1023, axis=0)"
                self.put(depth, f"{self.name(self.scalars)} = {text}")
            case 6:
                text = f"early(x, {self.scalar(1)} + pid, n)"
                self.put(depth, f"{self.name(self.scalars)} = {text}")
            case 7 if len(self.blocks) > 1:
                self.put(depth, f"{pick.choice(self.blocks[1:])} = {self.block()} + 0 * pid")
            case _ if depth < 3:
                self.inner(depth)
            case _:
                self.put(depth, f"tl.atomic_add({pointer} + {own}, {self.block()}{mask})")

    def inner(self, depth: int) -> None:
        """A branch or a loop, whose names are not known after it."""
        blocks, scalars = list(self.blocks), list(self.scalars)
        if self.pick.random() < 0.5:
            self.put(depth, f"if {self.scalar(1)} > {self.scalar(1)} + pid:")
        else:
            stop = self.scalar(3)
            self.put(depth, f"for {self.name(self.scalars)} in range(0, {stop} & 3):")
        for _ in range(3):
            self.statement(depth + 1)
        self.blocks, self.scalars = blocks, scalars


def made(seed: int, folder: Path) -> Any:
    """The kernel, in a file because its source is read."""
    file = folder / f"random_{seed}.py"
    file.write_text(HEAD + "\n".join(Maker(seed).lines) + "\n")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


@pytest.mark.parametrize("seed", range(24))
def test_a_random_kernel(both, tmp_path, seed):
    kernel = made(seed, tmp_path)
    lanes = [1, 4, 64, 128][seed % 4]
    for n, m in [(0, 1), (lanes, -1), (lanes - 1, lanes // 2)]:
        # The two overlap, so that a store to one may change what the other reads.
        memory = torch.randint(-50, 200, (400,), dtype=torch.int32)
        out = torch.zeros(2 * 8 * lanes, dtype=torch.int32)
        both(kernel, (2,), memory[:200], memory[1 + seed % 3 :], out, n, m, lanes, 4)
