"""A builder of LLVM text: one function, its basic blocks, and common subexpressions.

Rule: pure instructions go through :meth:`Builder.pure`, which returns the earlier value of the
same text where that value dominates. So two computations of one address give one name, and names
can be compared.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Ssa(NamedTuple):
    """A value: its LLVM type and its name or constant."""

    ty: str
    ref: str

    def __str__(self) -> str:
        return f"{self.ty} {self.ref}"


TRUE = Ssa("i1", "true")
FALSE = Ssa("i1", "false")


def i64(value: int) -> Ssa:
    """An i64 constant."""
    return Ssa("i64", str(value))


class Phi(NamedTuple):
    """A phi whose incoming values are given later."""

    value: Ssa
    block: str
    line: int


Scope = dict[str, Ssa]


class Builder:
    """Appends instructions to the current block of one function."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[str]] = {"entry": []}
        self._count = 0
        self._scopes: list[Scope] = [{}]
        self._current = self._blocks["entry"]
        self.label = "entry"
        self.declarations: set[str] = set()
        self.helpers: set[str] = set()

    # -- blocks and scopes

    def fresh(self, stem: str) -> str:
        """A name that is used nowhere else in the function."""
        self._count += 1
        return f"{stem}{self._count}"

    def start(self, label: str) -> None:
        """Continue at the end of this block, making it if needed."""
        self._current = self._blocks.setdefault(label, [])
        self.label = label

    @contextmanager
    def scope(self, known: Scope | None = None) -> Iterator[Scope]:
        """Values found in here do not dominate what comes after."""
        self._scopes.append({} if known is None else known)
        try:
            yield self._scopes[-1]
        finally:
            self._scopes.pop()

    # -- instructions

    def emit(self, text: str) -> None:
        """An instruction without a value."""
        self._current.append(text)

    def effect(self, ty: str, text: str) -> Ssa:
        """An instruction with a value that must not be shared (a load, say)."""
        name = f"%v{self._count}"
        self._count += 1
        self._current.append(f"{name} = {text}")
        return Ssa(ty, name)

    def pure(self, ty: str, text: str) -> Ssa:
        """An instruction whose value depends on its text only."""
        for scope in reversed(self._scopes):
            found = scope.get(text)
            if found is not None:
                return found
        value = self.effect(ty, text)
        self._scopes[-1][text] = value
        return value

    def call(self, ty: str, name: str, *args: Ssa) -> Ssa:
        """A pure call of an LLVM intrinsic."""
        self.declarations.add(f"declare {ty} @{name}({', '.join(a.ty for a in args)})")
        return self.pure(ty, f"call {ty} @{name}({', '.join(map(str, args))})")

    def helper(self, ty: str, name: str, *args: Ssa) -> Ssa:
        """A pure call of one of the functions in :mod:`vllm_av.cpu.maths`."""
        self.helpers.add(name)
        return self.pure(ty, f"call {ty} @{name}({', '.join(map(str, args))})")

    def branch(self, label: str) -> None:
        """Leave the block."""
        self.emit(f"br label %{label}")

    def branch_if(self, condition: Ssa, then: str, other: str) -> None:
        """Leave the block one way or the other."""
        self.emit(f"br {condition}, label %{then}, label %{other}")

    def phi(self, ty: str) -> Phi:
        """A phi in the current block; :meth:`fill` gives it its incoming values."""
        value = self.effect(ty, "")
        return Phi(value, self.label, len(self._current) - 1)

    def fill(self, phi: Phi, *incoming: tuple[Ssa, str]) -> None:
        """Give a phi its incoming values."""
        pairs = ", ".join(f"[ {value.ref}, %{label} ]" for value, label in incoming)
        self._blocks[phi.block][phi.line] = f"{phi.value.ref} = phi {phi.value.ty} {pairs}"

    def merge(self, ty: str, *incoming: tuple[Ssa, str]) -> Ssa:
        """A phi whose incoming values are known already."""
        phi = self.phi(ty)
        self.fill(phi, *incoming)
        return phi.value

    def alloca(self, ty: str, count: int) -> Ssa:
        """Room for ``count`` elements, made once per call and not once per program."""
        name = self.fresh("%b")
        self._blocks["entry"].insert(0, f"{name} = alloca [{count} x {ty}], align 64")
        return Ssa("ptr", name)

    # -- the whole

    def function(self, head: str) -> str:
        """The text of the function whose signature is ``head``."""
        lines = [f"{head} {{"]
        for label, body in self._blocks.items():
            lines.append(f"{label}:")
            lines += [f"  {line}" for line in body]
        return "\n".join([*lines, "}"])
