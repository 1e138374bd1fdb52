"""What is installed in an environment, as its metadata tell.

Rule: odd metadata of what nobody asks for are passed over, as installers do; where they are of what
is asked for, the refusal names their folder. Nothing here is imported, and nothing is written.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from importlib.metadata import EntryPoint, PathDistribution
from pathlib import Path

from ci.image.refusal import Refusal

METADATA = {".dist-info": "METADATA", ".egg-info": "PKG-INFO"}
"""A folder's kind -> the file that says what it is of. The second kind may be that file itself."""


@dataclass(frozen=True)
class Installed:
    """A distribution.

    Args:
        info: the folder of its metadata.
        said: what they say; None, where that is no text.
    """

    info: Path
    said: Message | None

    @property
    def name(self) -> str:
        """As it is compared; that of the folder, where the metadata have none."""
        return normal((self.said and self.said["Name"]) or self.info.stem.partition("-")[0])

    @property
    def version(self) -> str:
        """Its version.

        Raises:
            Refusal: AV-IMAGE-BASE, where it has none.
        """
        if self.said is None:
            raise _odd(self.info, "is not UTF-8")
        if not (version := self.said["Version"]):
            raise _odd(self.info, "names no version")
        return str(version)

    @property
    def points(self) -> tuple[EntryPoint, ...]:
        """Its entry points.

        Raises:
            Refusal: AV-IMAGE-BASE, where they cannot be read: vLLM reads those of every package.
        """
        try:
            return tuple(PathDistribution(self.info).entry_points)
        except (TypeError, ValueError) as error:  # a line without "="; no UTF-8
            raise _odd(self.info, f"has entry points that cannot be read ({error})") from None


def installed(places: Iterable[Path]) -> list[Installed]:
    """What is in these folders. Metadata that a removal has left behind empty are of nothing."""
    infos = (info for place in places for info in sorted(place.glob("*-info")))
    return [found for info in infos if (found := _read(info)) is not None]


def normal(name: str) -> str:
    """A distribution's name as names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _read(info: Path) -> Installed | None:
    path = info if info.is_file() else info / METADATA.get(info.suffix, "METADATA")
    if info.suffix not in METADATA or not path.is_file():
        return None
    try:
        return Installed(info, HeaderParser().parsestr(path.read_bytes().decode()))
    except UnicodeDecodeError:
        return Installed(info, None)


def _odd(info: Path, how: str) -> Refusal:
    return Refusal(
        "AV-IMAGE-BASE",
        f"{info} {how}",
        "packages whose metadata can be read",
        "take the base image as the vLLM project published it",
    )
