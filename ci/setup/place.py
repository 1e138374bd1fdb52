"""Where set-up reads and writes: one environment, and a folder of logs below ``build``."""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ci.setup.pythons import VERSION


@dataclass(frozen=True)
class Place:
    """One environment of a checkout.

    Args:
        root: the checkout.
        python: the interpreter that makes the environment.
        name: the environment's folder in the checkout.
        job: what keeps its logs apart from another environment's.
    """

    root: Path
    python: str
    name: str = ".venv"
    job: str = "setup"

    @property
    def venv(self) -> Path:
        return self.root / self.name

    @property
    def venv_python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def site(self) -> Path:
        major, minor = VERSION
        return self.venv / "lib" / f"python{major}.{minor}" / "site-packages"

    @property
    def stamps(self) -> Path:
        """Inside the environment, so that they vanish with it."""
        return self.venv / ".setup"

    @property
    def logs(self) -> Path:
        return self.root / "build" / self.job

    @property
    def turn(self) -> Path:
        """Held by the set-up whose turn it is: one environment is made from another."""
        return self.root / "build" / "set-up.lock"

    @property
    def lock(self) -> Path:
        return self.root / "requirements.lock"


def digest(parts: Iterable[str | bytes]) -> str:
    """One hash over ``parts``, with borders between them."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "big") + data)
    return total.hexdigest()


PIP_KEPT = {
    *("INDEX_URL", "EXTRA_INDEX_URL", "FIND_LINKS", "NO_INDEX", "TRUSTED_HOST", "CONFIG_FILE"),
    *("CERT", "CLIENT_CERT", "PROXY", "TIMEOUT", "DEFAULT_TIMEOUT", "RETRIES", "KEYRING_PROVIDER"),
    *("CACHE_DIR", "NO_CACHE_DIR"),
}


def clean_env() -> dict[str, str]:
    """The environment for children: one that a user's own Python settings cannot bend."""
    dropped = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    # The step that imports vLLM leaves the bytecode of thousands of modules for those after it.
    dropped |= {"PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"}
    # Of pip's settings those that say from where it installs, and none that say what or whereto.
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in dropped and (not name.startswith("PIP_") or name[4:] in PIP_KEPT)
    }
    return {
        **env,
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PYTHONNOUSERSITE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
