"""Lists the Debian packages of an image's layer, from dpkg's own record in it."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

from release.errors import ReleaseError

STATUS = "var/lib/dpkg/status"


@dataclass(frozen=True, order=True)
class Package:
    """A Debian package as it is installed."""

    name: str
    version: str
    architecture: str


def installed(layer: Path) -> list[Package]:
    """Return the installed packages, sorted. Raises ReleaseError."""
    with tarfile.open(layer) as tar:
        try:
            record = tar.extractfile(STATUS)
        except KeyError:
            record = None
        if record is None:
            raise ReleaseError(f"{layer}: has no {STATUS}; remove it, so that it is built again")
        text = record.read().decode()
    paragraphs = [Parser().parsestr(part) for part in text.split("\n\n") if part.strip()]
    return sorted(
        Package(each["Package"], each["Version"], each["Architecture"])
        for each in paragraphs
        if each["Status"] == "install ok installed"
    )
