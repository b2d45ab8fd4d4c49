"""Unpacks an archive that hostile code may have written: nothing lands outside the target, or is longer than the archive."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO

_IN_THE_WAY = (FileExistsError, IsADirectoryError, NotADirectoryError)


def unpack(archive: IO[bytes], target: Path) -> None:
    """Write files, directories and links of an uncompressed archive below a directory; leave out what is unsafe.

    Not `tarfile`'s own extraction: its filter has had ways around it, and Python has it only from 3.11.4 on.
    """
    archive.seek(0)
    target.mkdir(parents=True, exist_ok=True)
    links: list[tuple[Path, str]] = []
    with tarfile.open(fileobj=archive, mode="r:") as tar:
        for member in tar:
            place = _place(target, member.name)
            if place is None:
                continue
            try:
                if member.issym():
                    links.append((place, member.linkname))
                else:
                    _write(tar, member, place, target)
            except _IN_THE_WAY:
                continue
    # Last: while files are written, no link of the archive leads anywhere.
    for place, leads_to in links:
        if _stays(leads_to):
            try:
                _make_way(place)
                place.symlink_to(leads_to)
            except _IN_THE_WAY:
                continue


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, place: Path, target: Path) -> None:
    if member.isdir():
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(member.mode & 0o777 | 0o700)
    elif member.islnk():
        # A link, since a copy for each name would multiply the archive's length.
        other = _place(target, member.linkname)
        if other is not None and other.is_file():
            _make_way(place)
            os.link(other, place)
    elif member.isreg() and not member.issparse():  # holes would be longer than the archive
        _make_way(place)
        source = tar.extractfile(member)
        assert source is not None  # a regular file has content
        with place.open("xb") as file:
            shutil.copyfileobj(source, file)
        place.chmod(member.mode & 0o777)


def _place(target: Path, name: str) -> Path | None:
    """Return where the member goes, None if not below the target by directories alone."""
    parts = PurePosixPath(name).parts
    if not parts:  # the directory itself, whose mode is the caller's matter
        return None
    if not _stays(name):
        return None
    place = target
    for part in parts[:-1]:
        place = place / part
        if place.is_symlink():
            return None
    return place / parts[-1]


def _stays(path: str) -> bool:
    """Whether a path stays below where it begins, whatever is there: no way up, not absolute."""
    parts = PurePosixPath(path)
    return not parts.is_absolute() and ".." not in parts.parts and "\0" not in path


def _make_way(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_symlink() or place.is_file():
        place.unlink()
