"""Names of GPUs and what vLLM tells them apart by: platform and compute capability.

Rule: a name that is not known is a mistake, never a guess; this machine's own GPU is found without
torch.
"""

import os
import re
from collections.abc import Mapping, Sequence

from vllm_av.errors import CheckError, Code
from vllm_av.machine import Gpu as Seen
from vllm_av.machine import look
from vllm_av.preflight.facts import Gpu
from vllm_av.triton_shim.target import vllm_is_cpu

AUTO = "auto"

CUDA: Mapping[tuple[int, int], tuple[str, ...]] = {
    (7, 5): ("t4", "rtx2080", "rtx2080ti", "quadrortx6000"),
    (8, 0): ("a100", "a30", "a800"),
    (8, 6): ("a10", "a10g", "a16", "a40", "a6000", "rtxa6000", "rtx3080", "rtx3090", "rtx3090ti"),
    (8, 7): ("orin",),
    (8, 9): ("l4", "l40", "l40s", "l20", "rtx4080", "rtx4090", "rtx6000ada"),
    (9, 0): ("h100", "h200", "h800", "h20", "gh200"),
    (10, 0): ("b200", "gb200"),
    (10, 3): ("b300", "gb300"),
    (11, 0): ("thor",),
    (12, 0): ("rtx5070", "rtx5080", "rtx5090", "rtxpro6000", "rtxpro6000blackwell"),
    (12, 1): ("gb10", "dgxspark"),
}
"""Compute capability -> what it is sold as."""

ROCM: Mapping[str, tuple[str, ...]] = {
    "gfx90a": ("mi210", "mi250", "mi250x"),
    "gfx942": ("mi300a", "mi300x", "mi308x", "mi325x"),
    "gfx950": ("mi350x", "mi355x"),
    "gfx1100": ("rx7900xt", "rx7900xtx", "w7900"),
    "gfx1101": ("rx7800xt",),
    "gfx1151": ("strixhalo",),
    "gfx1200": ("rx9060xt",),
    "gfx1201": ("rx9070", "rx9070xt", "r9700"),
    "gfx1250": ("mi450",),
}
"""Target of AMD's compiler -> what it is sold as."""

OLD: Mapping[str, str] = {
    **dict.fromkeys(("v100", "titanv", "7.0", "70", "sm70"), "sm70"),
    **dict.fromkeys(("p4", "p40", "gtx1080", "gtx1080ti", "6.1", "61", "sm61"), "sm61"),
    **dict.fromkeys(("p100", "6.0", "60", "sm60"), "sm60"),
}
"""Name -> what vLLM has no kernels for any more."""

OTHERS: Mapping[str, str] = {"cpu": "cpu", "xpu": "xpu"}
"""Name -> platform, where vLLM looks at no capability."""


def gpu(name: str) -> Gpu | None:
    """The GPU of that name; of ``auto`` this machine's, None where it cannot be seen.

    Raises:
        CheckError: AV-QUESTION-GPU.
    """
    if _plain(name) == AUTO:
        return here()
    found = named(name)
    if found is None:
        # It needs pydantic, and the doctor, which uses this module, works without.
        from vllm_av.config.text import shown

        if (old := OLD.get(_plain(name))) is not None:
            raise CheckError(
                Code.QUESTION_GPU,
                f"--gpu {shown(name)} is {old}",
                "sm75 and newer of NVIDIA's",
                f"name another GPU: {old} is not supported by vLLM",
            )
        near = _near(_plain(name))
        raise CheckError(
            Code.QUESTION_GPU,
            f"--gpu {shown(name)} is not known",
            f"auto, {', '.join(sorted(targets(), key=_order))}, or a name such as h200, rtx5090",
            f"write --gpu {' or '.join(near)}"
            if near
            else "write what it is: sm and its compute capability",
        )
    return found


def named(name: str) -> Gpu | None:
    """The GPU of that name, None where this package does not know it."""
    plain = _plain(name)
    if plain in OTHERS:
        return Gpu(name, OTHERS[plain], 0, 0)
    for target, sold in ROCM.items():
        if plain == target or plain in sold:
            return Gpu(name, "rocm", *rocm_capability(target))
    for (major, minor), sold in CUDA.items():
        sm = f"{major}{minor}"
        if plain in sold or re.fullmatch(rf"(sm)?({sm}[af]?|{major}\.{minor})", plain):
            return Gpu(name, "cuda", major, minor)
    return None


def targets() -> list[str]:
    """The names that say what vLLM looks at: sm.., gfx.., cpu, xpu."""
    return [*(f"sm{major}{minor}" for major, minor in CUDA), *ROCM, *OTHERS]


def names() -> list[str]:
    """Every name, but for other spellings of the same."""
    sold = [name for each in (*CUDA.values(), *ROCM.values()) for name in each]
    return [AUTO, *targets(), *sold]


def rocm_capability(target: str) -> tuple[int, int]:
    """Major and minor as HIP takes them from a target: gfx942 is 9 and 4, gfx1100 is 11 and 0."""
    digits = re.match(r"gfx(\d+)", target)
    assert digits is not None, target
    number = digits[1]
    cut = 1 if len(number) < 4 else 2
    return int(number[:cut]), int(number[cut])


def rocm_target(device: Gpu) -> str:
    """The target of a ROCm device: its own if it was named so, else the first of its capability."""
    plain = _plain(device.name)
    for target, sold in ROCM.items():
        if plain == target or plain in sold:
            return target
    fitting = [each for each in ROCM if rocm_capability(each) == (device.major, device.minor)]
    return fitting[0] if fitting else f"gfx{device.major}{device.minor}0"


def here(environ: Mapping[str, str] = os.environ) -> Gpu | None:
    """What vLLM here would run on; None where that cannot be seen without its help."""
    return Gpu("cpu", "cpu", 0, 0) if vllm_is_cpu() else of_devices(look().gpus, environ)


def visible(environ: Mapping[str, str] = os.environ) -> Gpu | None:
    """What another vLLM than the one here would run on, if it is built for it."""
    return of_devices(look().gpus, environ)


def of_devices(found: Sequence[Seen], environ: Mapping[str, str]) -> Gpu | None:
    """The one of a machine's devices that vLLM asks: its first, which a variable may choose."""

    def first(vendor: str, hides: str) -> Seen | None:
        ours = [each for each in found if each.vendor == vendor]
        chosen = environ.get(hides)
        if chosen is None or not ours:
            return ours[0] if ours else None
        index = chosen.split(",")[0].strip()
        if not index.isdigit():  # a device's uuid: of which kind it is cannot be told
            return ours[0] if index and len({each.name for each in ours}) == 1 else None
        return ours[int(index)] if int(index) < len(ours) else None

    if nvidia := first("nvidia", "CUDA_VISIBLE_DEVICES"):
        return of_nvidia(nvidia.name, nvidia.capability)
    if amd := first("amd", "HIP_VISIBLE_DEVICES"):
        return of_amd(amd.name)
    return None


def of_nvidia(name: str, capability: str | None) -> Gpu | None:
    """A device as NVIDIA's driver tells it: its capability, else what it is sold as."""
    if match := re.fullmatch(r"(\d+)\.(\d)", capability or ""):
        return Gpu(name, "cuda", int(match[1]), int(match[2]))
    plain = _plain(name)
    fitting = [(len(sold), pair) for pair, names in CUDA.items() for sold in names if sold in plain]
    return Gpu(name, "cuda", *max(fitting)[1]) if fitting else None


def of_amd(name: str) -> Gpu | None:
    """A device as the kernel tells it: ``gfx target 90402`` is gfx942, 110000 is gfx1100."""
    match = re.fullmatch(r"gfx target (\d+)(\d\d)(\d\d)", name)
    if match is None:
        return None
    target = f"gfx{int(match[1])}{int(match[2]):x}{int(match[3]):x}"
    return named(target)


_FORM = re.compile(
    r"\d+gb?|hbm\d*e?|sxm\d*|pcie|nvl\d*|hgx|tesla|generation|server|workstation|edition"
)
"""Words of a name that tell neither platform nor capability: memory, and how it is built in."""


def _near(plain: str) -> list[str]:
    """What a name that is not known may be: what it begins, the longest that begins it, a slip."""
    known = names()
    begun = [each for each in known if plain and each.startswith(plain)]
    begins = sorted((each for each in known if plain.startswith(each)), key=len)[-1:]
    slips = [each for each in known if _one_off(plain, each)]
    return list(dict.fromkeys((*begins, *slips, *begun)))[:4]


def _one_off(first: str, second: str) -> bool:
    """Whether one character is another, too many or missing."""
    short, long = sorted((first, second), key=len)
    if len(long) - len(short) > 1 or len(short) < 3:
        return False
    pairs = enumerate(zip(short, long, strict=False))
    same = next((n for n, (a, b) in pairs if a != b), len(short))
    return short[same + (len(short) == len(long)) :] == long[same + 1 :]


def _plain(name: str) -> str:
    words = (word for word in re.split(r"[\s_-]+", name.lower()) if not _FORM.fullmatch(word))
    plain = "".join(words)
    return re.sub(r"nvidia|geforce|radeon|instinct|amd", "", plain)


def _order(target: str) -> tuple[str, int]:
    digits = re.search(r"\d+", target)
    return (re.sub(r"\d.*", "", target), int(digits[0]) if digits else 0)
