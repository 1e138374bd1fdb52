"""One kernel and one signature -> the LLVM text of one function that runs the whole grid.

Rule: the function's only argument is a pointer to 8-byte slots: the three grid sizes, then the
kernel's runtime arguments in order. The grid runs in the order of Triton's interpreter (x
outermost), on one thread.
"""

import inspect
from dataclasses import dataclass
from typing import Any

import triton.language as tl

from vllm_av.cpu import maths
from vllm_av.cpu.arith import load
from vllm_av.cpu.frames import Frame, source
from vllm_av.cpu.ir import Builder, Ssa, i64
from vllm_av.cpu.lanes import Lanes, TooLarge
from vllm_av.cpu.ops import Unsupported
from vllm_av.cpu.statements import Statements
from vllm_av.cpu.values import Const, Env, Group, Scalar, Value
from vllm_av.errors import Code, KernelError

ENTRY = "av_kernel"


@dataclass(frozen=True, slots=True)
class Parameter:
    """How a kernel's parameter is given: a runtime value of a type, or a constant."""

    name: str
    dtype: Any = None
    constant: Any = None


class Kernel(Statements):
    """The compiler of one kernel."""

    def __init__(self, function: Any) -> None:
        b = Builder()
        super().__init__(b, Lanes(b))
        self.function = function
        self.frame = Frame.of(function, 0)
        self._pids: list[Ssa] = []
        self._grid: list[Ssa] = []

    def compile(self, parameters: tuple[Parameter, ...]) -> str:
        """The LLVM text.

        Raises:
            KernelError: ``AV-KERNEL-UNSUPPORTED``, with the line and the construct;
                ``AV-KERNEL-ASSERTION``, a static_assert does not hold.
        """
        try:
            return self._compile(parameters)
        except KernelError:
            raise
        except Exception as error:
            # Whatever it is (Triton's rules raise TypeError, say), the interpreter can
            # have the kernel.
            if isinstance(error, TooLarge):
                what = "blocks too large for the stack"
            else:
                kind = "" if isinstance(error, Unsupported) else f"{type(error).__name__}: "
                what = f"{kind}{error}"
            file = inspect.getsourcefile(self.frame.function) or "?"
            first = inspect.getsourcelines(self.frame.function)[1]
            raise KernelError(
                Code.KERNEL_UNSUPPORTED,
                given=f"the Triton kernel {self.function.__name__} has {what} "
                f"({file.rsplit('/', 1)[-1]}:{first + max(0, self.frame.line - 1)})",
                allowed="what vllm_av.cpu compiles is listed in vllm_av/cpu/builtins.py",
                fix="it runs in Triton's interpreter instead, slowly",
            ) from error

    def _compile(self, parameters: tuple[Parameter, ...]) -> str:
        b = self.b
        slots = Ssa("ptr", "%slots")
        self._grid = [self._slot(slots, k, tl.int64) for k in range(3)]
        env: Env = {}
        offset = 3
        for parameter in parameters:
            if parameter.dtype is None:
                env[parameter.name] = _constant(parameter.constant)
            else:
                ssa = self._slot(slots, offset, parameter.dtype)
                env[parameter.name] = Scalar(parameter.dtype, ssa)
                offset += 1
        self._nest(env)
        definitions, declarations = maths.text_of(b.helpers)
        body = b.function(
            f'define void @{ENTRY}(ptr noalias readonly %slots) "prefer-vector-width"="512"'
        )
        return "\n".join([*sorted(declarations | b.declarations), *definitions, body, ""])

    def _slot(self, slots: Ssa, k: int, dtype: Any) -> Ssa:
        address = self.b.pure("ptr", f"getelementptr i64, {slots}, i64 {k}")
        return load(self.b, dtype, address)

    def _nest(self, env: Env) -> None:
        b, ends = self.b, []
        for axis in range(3):
            head, body, done = (
                b.fresh(f"{stem}{axis}_") for stem in ("grid", "program", "gridend")
            )
            before = b.label
            b.branch(head)
            b.start(head)
            phi = b.phi("i64")
            b.branch_if(b.effect("i1", f"icmp slt {phi.value}, {self._grid[axis].ref}"), body, done)
            b.start(body)
            self._pids.append(phi.value)
            ends.append((phi, before, head, done))
        with b.scope():
            tree = source(self.function)
            self.run_body(tree.body, env)
            self.lanes.flush()
        for phi, before, head, done in reversed(ends):
            following = b.effect("i64", f"add nuw nsw {phi.value}, 1")
            b.fill(phi, (i64(0), before), (following, b.label))
            b.branch(head)
            b.start(done)
        b.emit("ret void")

    def tl_program_id(self, axis: Value) -> Value:
        return self._grid_value(self._pids, axis)

    def tl_num_programs(self, axis: Value) -> Value:
        return self._grid_value(self._grid, axis)

    def _grid_value(self, values: list[Ssa], axis: Value) -> Value:
        assert isinstance(axis, Const)
        value = values[axis.value]
        return Scalar(tl.int32, self.b.pure("i32", f"trunc {value} to i32"))


def _constant(found: Any) -> Value:
    if isinstance(found, tuple | list):
        return Group(tuple(_constant(v) for v in found))
    return Const(found.value if isinstance(found, tl.constexpr) else found)
