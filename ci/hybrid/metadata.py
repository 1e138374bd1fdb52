"""The metadata of the mixture: a distribution ``vllm`` whose version says that it is for the CPU.

Rule: RECORD has a line for every file, with the sum that the file has: `vllm-av patch` takes it
as the proof of what was installed.
"""

import csv
import re

from vllm_av.patching.tree import record_line

LOCAL = "cpu"
"""The local version: vLLM takes the CPU for its platform where its version names it."""

GPU_ONLY = frozenset(
    {
        *("apache-tvm-ffi", "fastsafetensors", "flashinfer-python", "humming-kernels"),
        *("instanttensor", "nvidia-cudnn-frontend", "nvidia-cutlass-dsl", "nvtx"),
        *("pynvvideocodec", "quack-kernels", "tilelang", "tokenspeed-mla"),
        *("torch", "torchaudio", "torchcodec", "torchvision"),
    }
)
"""What vLLM's GPU wheel requires for its compiled code, its torch and torch's companions; the
mixture has the torch of the other vLLM."""


def metadata(text: str) -> str:
    """METADATA of a GPU wheel, made that of the mixture."""
    head, gap, description = text.partition("\n\n")
    lines = [line for line in head.split("\n") if _required(line) not in GPU_ONLY]
    version = re.compile(r"Version: [^+]+")
    lines = [f"{line}+{LOCAL}" if version.fullmatch(line) else line for line in lines]
    return "\n".join(lines) + gap + description


def _required(line: str) -> str | None:
    """The distribution that a line requires without an extra, in normal form."""
    found = re.match(r"Requires-Dist: ([A-Za-z0-9._-]+)", line)
    if found is None or "extra ==" in line:
        return None
    return re.sub(r"[-_.]+", "-", found[1]).lower()


def lines_by_path(record: str) -> dict[str, str]:
    """RECORD's lines as they stand, by the path that each is about."""
    return {next(csv.reader([line]))[0]: line for line in record.splitlines() if line}


def record(kept: dict[str, str], written: dict[str, bytes], own: str) -> str:
    """RECORD of the mixture.

    Args:
        kept: lines of other RECORDs, for files that came with them.
        written: content of the files that are new here.
        own: the path of RECORD itself.
    """
    lines = dict(kept)
    lines |= {path: record_line(path, content) for path, content in written.items()}
    lines[own] = record_line(own, None)
    return "".join(f"{lines[path]}\n" for path in sorted(lines))
