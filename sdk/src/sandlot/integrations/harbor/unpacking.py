"""Unpacks an archive that hostile code may have written: nothing lands outside the target, or is longer than the archive."""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

# Bytes of a name in a header of its own, which tarfile reads whole. Linux's paths have 4096 at most.
LONGEST_NAME = 16 << 10
LONGEST_MEMBER = 1 << 40  # bytes; beyond a file system's limit, a seek would fail like a broken disk
MOST_MEMBERS = 1_000_000
_NAMES = frozenset((tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK))
# Not the headers of POSIX nor sparse files: their sizes override others, and tarfile keeps their fields in memory.
_READ = _NAMES | frozenset(
    (
        *(tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE),
        *(tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE),
    )
)
_OF_THE_DISK = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS))


class UnreadableArchive(ValueError):
    """What came is no archive in GNU's format, ends too early, or has sizes that no tar writes."""


def unpack(archive: IO[bytes], target: Path) -> None:
    """Write files, directories and links of an uncompressed archive below a directory; leave out what is unsafe.

    Not `tarfile`'s own extraction: its filter has had ways around it, and Python has it only from 3.11.4 on.
    Raises UnreadableArchive, OSError (this machine's disk).
    """
    archive.seek(0)
    target.mkdir(parents=True, exist_ok=True)
    links: list[tuple[str, str]] = []
    try:
        with _Archive(fileobj=archive, tarinfo=_Header) as tar:
            for member in _members(tar):
                if member.issym():
                    links.append((member.name, member.linkname))
                else:
                    with _left_out_if_refused():
                        _write(tar, member, target)
    # tarfile itself raises any of these for malformed headers.
    except (tarfile.TarError, ValueError, LookupError, RecursionError, OverflowError) as error:
        raise UnreadableArchive(str(error)) from error
    # Last: while files are written, no link of the archive leads anywhere.
    for name, leads_to in links:
        with _left_out_if_refused():
            _link(name, leads_to, target)


class _Archive(tarfile.TarFile):
    members: list[tarfile.TarInfo]


class _Header(tarfile.TarInfo):
    """A header that cannot make `tarfile` go back, or keep more than a name in memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        made = super().frombuf(buf, encoding, errors)
        if made.type not in _READ:
            raise UnreadableArchive(f"a member of type {made.type!r}")
        if not 0 <= made.size <= (LONGEST_NAME if made.type in _NAMES else LONGEST_MEMBER):
            raise UnreadableArchive(f"a member of type {made.type!r} and {made.size} bytes")
        return made


def _members(tar: _Archive) -> Iterator[tarfile.TarInfo]:
    """Yield the members. Raises UnreadableArchive."""
    for _ in range(MOST_MEMBERS):
        member = tar.next()
        if member is None:
            return
        tar.members.clear()  # it keeps all that it has read
        yield member
    raise UnreadableArchive(f"more than {MOST_MEMBERS} members")


@contextmanager
def _left_out_if_refused() -> Generator[None]:
    """Go on after a member whose name or place the file system refuses; a full or broken disk raises."""
    try:
        yield
    except UnicodeError:
        return
    except OSError as error:
        if error.errno in _OF_THE_DISK:
            raise


def _link(name: str, leads_to: str, target: Path) -> None:
    place = _place(target, name)
    if place is not None and _stays(leads_to):
        _make_way(place)
        place.symlink_to(leads_to)


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    place = _place(target, member.name)
    if place is None:
        return
    if member.isdir():
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(member.mode & 0o777 | 0o700)
    elif member.islnk():
        # A link, since a copy for each name would multiply the archive's length.
        other = _place(target, member.linkname)
        if other is not None and other != place and other.is_file():
            _make_way(place)
            os.link(other, place)
    elif member.isreg():
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
