"""The edge of this package: what a broken file or file system answers becomes one line.

Rule: every public verb is wrapped in it, so that no file, whatever it holds, ends in a traceback.
"""

import binascii
import csv
from collections.abc import Iterator
from contextlib import contextmanager

from vllm_av.errors import Code, PatchError


@contextmanager
def told() -> Iterator[None]:
    """Raise what cannot be read or written as a :class:`PatchError`.

    Raises:
        PatchError: AV-PATCH-WRITE.
    """
    try:
        yield
    except OSError as error:
        raise PatchError(
            Code.PATCH_WRITE,
            f"cannot read or write {error.filename or 'a file'} ({error.strerror})",
            "vLLM, its metadata, and the record beside it are plain files that the user may read",
            "mend that and run the command again",
        ) from error
    except (UnicodeError, csv.Error, binascii.Error, OverflowError) as error:
        raise PatchError(
            Code.PATCH_WRITE,
            f"a name, the metadata or a file of the vLLM is damaged ({error})",
            "names and metadata as the installer wrote them",
            "install that vLLM again (pip install --force-reinstall --no-deps)",
        ) from error
