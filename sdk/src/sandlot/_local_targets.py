"""Local files that a download writes: code of the sandbox chooses their names, and none may lead out of the target."""

from __future__ import annotations

import os
import secrets
import stat
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath
from typing import BinaryIO

from sandlot.errors import FileConflict
from sandlot.models import FileInfo


class DownloadTarget:
    """What one download makes here. Below its top it neither follows nor replaces a link.

    Names are checked against what is on the disk, not against each other: a file system may ignore their case.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # of a blocking copy's threads
        self._here: set[tuple[int, int]] = set()  # device and inode of what this copy has written
        self._modes: list[tuple[Path, int]] = []

    def top_directory(self, path: Path, mode: str) -> None:
        """Make the directory of the copy, or use the one that is there, also through a link."""
        new = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        self._note(path.stat(), path)
        if new:
            self._keep(path, mode)

    def directory(self, path: Path, mode: str) -> None:
        """Make a directory below the top, or use the one that is there. Raises FileConflict."""
        try:
            path.mkdir()
        except FileExistsError:
            if not stat.S_ISDIR(_plain(path).st_mode):
                raise FileConflict(
                    f"{path}: is no directory here, but one in the sandbox: remove it, or copy to another place",
                    path=str(path),
                ) from None
        else:
            self._keep(path, mode)
        self._note(path.lstat(), path)

    @contextmanager
    def file(self, path: Path, mode: str, *, top: bool) -> Generator[BinaryIO]:
        """Open a file that gets its name, in place of a former one, when the block ends without an error."""
        partial, file = _temporary(path.parent)
        try:
            with file:
                yield file
            if mode:
                partial.chmod(int(mode, 8) & 0o777)
            with self._lock:
                if not top:
                    self._check_file(path)
                partial.replace(path)
                about = path.lstat()
                self._here.add((about.st_dev, about.st_ino))
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

    def check_file(self, path: Path) -> None:
        """Raise FileConflict if a file below the top cannot have this name."""
        with self._lock:
            self._check_file(path)

    def set_modes(self) -> None:
        """Give the directories that were made the modes of those in the sandbox, the deepest first."""
        for path, mode in reversed(self._modes):
            path.chmod(mode)

    def _check_file(self, path: Path) -> None:
        try:
            about = _plain(path)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(about.st_mode):
            raise FileConflict(
                f"{path}: is a directory here, but none in the sandbox: remove it, or copy to another place",
                path=str(path),
            )
        if (about.st_dev, about.st_ino) in self._here:
            raise _same(path)

    def _keep(self, path: Path, mode: str) -> None:
        if mode:
            self._modes.append((path, int(mode, 8) & 0o777))

    def _note(self, about: os.stat_result, path: Path) -> None:
        me = (about.st_dev, about.st_ino)
        with self._lock:
            if me in self._here:
                raise _same(path)
            self._here.add(me)


def top_file(target: Path, info: FileInfo) -> Path:
    """Return the file that a download of one file writes: the target, or a file in it if it is a directory."""
    landing = target / safe_name(info) if target.is_dir() else target
    if landing.is_dir():
        raise FileConflict(f"{landing}: is a directory", path=str(landing))
    return landing


def safe_name(entry: FileInfo, *, windows: bool = os.name == "nt") -> str:
    """Return an entry's name. Raises FileConflict if the name could escape the target directory."""
    name = entry.name
    plain = name not in ("", ".", "..") and "/" not in name and "\0" not in name
    if (
        windows
    ):  # which drops dots and spaces at the end of a name, and takes what follows a colon for a stream
        plain = plain and PureWindowsPath(name).name == name and ":" not in name and name[-1] not in ". "
    if not plain:
        raise FileConflict(
            f"{entry.path}: the name is not a plain file name, so it cannot be copied", path=entry.path
        )
    return name


def _plain(path: Path) -> os.stat_result:
    """Stat a path that must not be a link."""
    about = path.lstat()
    if stat.S_ISLNK(about.st_mode):
        raise FileConflict(
            f"{path}: is a link here, and a copy follows none below its target: remove it, or copy to another place",
            path=str(path),
        )
    return about


def _same(path: Path) -> FileConflict:
    return FileConflict(
        f"{path}: two names of the sandbox are one here, where case may not count: copy to another file system",
        path=str(path),
    )


def _temporary(directory: Path) -> tuple[Path, BinaryIO]:
    """Make a file with a short name that code of the sandbox cannot guess; the final one may be as long as allowed."""
    while True:
        path = directory / f".sandlot-{secrets.token_hex(8)}"
        try:
            return path, path.open("xb")
        except FileExistsError:
            continue
