"""Write the mails for vLLM into a folder, with a page that says how to send them.

Rule: nothing is written unless all of it can be, and never beside somebody's files; the same
series gives the same bytes.
"""

import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vllm_av.errors import Code, PatchError
from vllm_av.patching.edge import told
from vllm_av.patching.files import (
    locked,
    make_folder,
    not_written,
    remove,
    replace_file,
    unfinished,
)
from vllm_av.patching.series import read_series, versions
from vllm_av.patching.tree import Source
from vllm_av.patching.upstream_mail import Mail, mails_of

PAGE = "README.md"
UNSIGNED = (
    "No mail is signed off, and its author is a placeholder: whoever sends one reads it, stands "
    "for it, and puts their own name and Signed-off-by there."
)


@dataclass(frozen=True)
class Staged:
    """What an export wrote."""

    folder: str
    version: str
    mails: tuple[Mail, ...]
    written: tuple[str, ...]
    """Names of the files that are new or changed."""

    def as_dict(self) -> dict[str, Any]:
        """The same, for ``--json``, without the texts of the mails."""
        answer = asdict(self) | {"note": UNSIGNED}
        for mail in answer["mails"]:
            del mail["text"]
        return answer


def newest(root: Path) -> str:
    """The newest vLLM with a series.

    Raises:
        PatchError: AV-PATCH-NO-SERIES.
    """
    if found := versions(root):
        return found[-1]
    raise PatchError(
        Code.PATCH_NO_SERIES,
        f"there is no series below {root}",
        "at least one",
        "install vllm_av again",
    )


@told()
def stage(root: Path, source: Source, to: Path, version: str, only: str | None = None) -> Staged:
    """Write the mails of a series, or of one patch and what it needs.

    Args:
        source: pristine files of that vLLM.
        to: a folder that is not there, is empty, or holds what an export wrote, finished or not.
        only: name of a patch.

    Raises:
        PatchError: as :func:`vllm_av.patching.upstream_mail.mails_of`; AV-PATCH-EXPORT, where the
            pristine files are another version's or the folder holds something else;
            AV-PATCH-BUSY, where another export writes there; and AV-PATCH-WRITE.
    """
    if source.version.partition("+")[0] != version:
        raise PatchError(
            Code.PATCH_EXPORT,
            f"{source.label} is vLLM {source.version}, and the series is for {version}",
            f"the pristine files of vLLM {version}",
            "name them with --pristine, or leave it out: pip fetches the pinned wheel",
        )
    mails = mails_of(read_series(root, version), source.read, root, only)
    texts = {mail.file: mail.text for mail in mails} | {PAGE: _page(version, mails).encode()}
    _refuse_others(to, texts)
    written = []
    try:
        make_folder(to)
        with locked(to):  # another export's unfinished file is not one that was left
            for name, text in texts.items():
                remove(unfinished(to / name))
                if not (to / name).is_file() or (to / name).read_bytes() != text:
                    replace_file(to / name, text)
                    written.append(name)
    except OSError as error:
        raise not_written(to, error, left="the export is incomplete") from error
    return Staged(str(to), version, tuple(mails), tuple(written))


def _refuse_others(to: Path, ours: Iterable[str]) -> None:
    if not to.exists():
        return
    if not to.is_dir():
        what = f"{to} is no folder"
    elif others := sorted({path.name for path in to.iterdir()} - _names(to, ours)):
        what = f"{to} holds {others[0]}, which is not of this export"
    else:
        return
    raise PatchError(
        Code.PATCH_EXPORT,
        what,
        "a folder that is not there, is empty, or holds the same export",
        "name another folder, or empty this one",
    )


def _names(to: Path, ours: Iterable[str]) -> set[str]:
    """What an export wrote, and what one that was killed did not finish."""
    parts = (unfinished(to / name) for name in ours)
    return {*ours, *(path.name for path in parts if path.is_file())}


def _page(version: str, mails: Iterable[Mail]) -> str:
    rows = "".join(
        f"| `{mail.file}` | {mail.title} | {', '.join(need[:4] for need in mail.needs) or 'none'} "
        f"| {', '.join(f'#{number}' for number in mail.related) or 'none'} |\n"
        for mail in mails
    )
    return f"""# Mails for vLLM, cut for v{version}

Each mail is one pull request: its title and its message are the pull request's, and it brings its
test. It applies to vLLM v{version} alone, or after the mails that the table names, in their order.

{textwrap.fill(UNSIGNED, 99)}

    git switch -c my-branch v{version}
    git am --keep-non-patch --keep-cr 0001-... 0002-...     # those it comes after, then the mail
    git rebase --signoff --exec 'git commit --amend --no-edit --reset-author' v{version}

Without `--keep-non-patch` git takes vLLM's tags from the titles. Before a mail is sent, its branch
is rebased on vLLM's main, its test is run there and on a GPU, and open pull requests are searched
for the same change: what stands under Test Result was seen on a CPU.

| mail | title | comes after | related |
|---|---|---|---|
{rows}"""
