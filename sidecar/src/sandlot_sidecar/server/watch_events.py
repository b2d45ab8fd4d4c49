"""Translates the kernel's inotify events into those of a watch, without I/O."""

from __future__ import annotations

import os
import struct

from ..core.watched import TooLong
from ..executor.file_replacement import TEMPORARY
from ..executor.file_watch import (
    IN_ATTRIB,
    IN_CREATE,
    IN_DELETE,
    IN_DELETE_SELF,
    IN_IGNORED,
    IN_ISDIR,
    IN_MODIFY,
    IN_MOVE_SELF,
    IN_MOVED_FROM,
    IN_MOVED_TO,
    IN_Q_OVERFLOW,
    IN_UNMOUNT,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..core.watched import Directory, Watched

    Event = dict[str, Any]
    Raw = tuple[int, int, int, str]

_HEAD = struct.Struct("iIII")
_ENDS_TOP = IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT
_HEX = frozenset("0123456789abcdef")
OVERFLOW: Event = {"kind": "overflow"}
MOST_KEPT = 1 << 20  # bytes of paths of new directories and their entries, which code can make long and many


def parse(data: bytes) -> list[Raw]:
    """Return watch, mask, cookie and name of each event of one read."""
    found: list[Raw] = []
    at = 0
    while at < len(data):
        number, mask, cookie, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        found.append((number, mask, cookie, os.fsdecode(data[at : at + length].rstrip(b"\0"))))
        at += length
    return found


def _size_of(path: str) -> int:
    """Return about how many bytes of JSON a path takes."""
    return len(path) if path.isascii() else 6 * len(path)


def _is_upload(name: str) -> bool:
    """Return whether it is a file that a write of the sidecar has not renamed yet."""
    return (
        name.startswith(TEMPORARY)
        and len(name) == len(TEMPORARY) + 16
        and set(name[len(TEMPORARY) :]) <= _HEX
    )


class _Moving:
    """What has left its place, until its new one is known."""

    __slots__ = ("directory", "is_dir", "path", "upload")

    def __init__(self, path: str, *, is_dir: bool, directory: Directory | None, upload: bool) -> None:
        self.path = path
        self.is_dir = is_dir
        self.directory = directory
        self.upload = upload


class Events:
    """Takes what was read, in order, and keeps the watched directories up to date.

    The caller ends the watches in `stale`, watches `new_directories`, and all anew if events are `lost`. `size` is that
    of the paths since the first read of a message: the caller sends it before it takes too much memory.
    """

    def __init__(self, watched: Watched, *, recursive: bool) -> None:
        self.watched = watched
        self._new: list[tuple[Directory, str]] = []  # by parent and name: a later event may rename the parent
        self.stale: list[int] = []
        self.lost = False
        self.size = 0
        self._missed = False
        self._recursive = recursive
        self._moving: dict[int, _Moving] = {}
        self._listed: set[str] = set()  # reported as entries of new directories, whose own events may follow
        self._listed_size = 0
        self._found: list[Event] = []
        self._told: set[tuple[str, str]] = set()

    @property
    def waits(self) -> bool:
        """Whether something has moved away, and its new place may follow."""
        return bool(self._moving)

    def take(self, data: bytes, *, last: bool, first: bool = True) -> list[Event]:
        """Return the events of one read. `first`: of a message; `last`: the kernel had no more."""
        if first:
            self._told.clear()
            self.size = 0
        raw = parse(data)
        arrived = {cookie for _, mask, cookie, _ in raw if mask & IN_MOVED_TO}
        for cookie in self._moving.keys() - arrived:
            self._settle(cookie)
        for index, (number, mask, cookie, name) in enumerate(raw, 1):
            self._take(number, mask, cookie, name)
            if self.lost:
                break
            # The kernel reports both places of a move together: the second is here, or begins the next read.
            if mask & IN_MOVED_FROM and cookie not in arrived and cookie in self._moving and index < len(raw):
                self._settle(cookie)
        if last:
            self._listed.clear()
            self._listed_size = 0
            self._missed = False
        found, self._found = self._found, []
        return found

    def new_directories(self) -> list[str]:
        """Return the directories that are to be watched, as paths from the first one, once; none if events are lost."""
        new, self._new = self._new, []
        begin = len(self.watched.path.rstrip("/")) + 1
        paths: list[str] = []
        size = 0
        for parent, name in new:
            if self.watched.get(parent.number) is not parent:
                continue
            path = self._path_of(parent, name)
            size += _size_of(path)
            if self.lost or size > MOST_KEPT:
                self.lost = True
                return []
            paths.append(path[begin:])
        return paths

    def added(self, answer: dict[str, Any]) -> list[Event]:
        """Take the executor's answer about new directories; return the events of their entries."""
        known = len(self.watched)
        directories: list[Directory | None] = []
        fresh: set[int] = set()
        for number, parent, name in answer["found"]:
            above, _, last = name.rpartition("/") if parent < 0 else ("", "", name)
            at = directories[parent] if parent >= 0 else self.watched.find(above)
            if at is None:
                self.stale.append(number)
                directories.append(None)
                continue
            directories.append(self.watched.add(number, last, at))
            if len(self.watched) > known:
                known = len(self.watched)
                fresh.add(len(directories) - 1)
        for index, name, is_dir in answer["entries"]:
            directory = directories[index]
            if directory is not None and index in fresh and not (_is_upload(name) and not is_dir):
                path = self._path_of(directory, name)
                self._listed_size += _size_of(path)
                if self.lost or self._listed_size > MOST_KEPT:
                    self.lost = True
                    break
                self._listed.add(path)
                self._tell("created", path, is_dir=is_dir)
        self._missed = self._missed or bool(answer["missed"])
        self.lost = self.lost or bool(answer["beyond"])
        found, self._found = self._found, []
        return found

    def _path_of(self, directory: Directory, name: str) -> str:
        """Return the path of an entry; events are lost if it is too long."""
        try:
            return self.watched.path_of(directory, name)
        except TooLong:
            self.lost = True
            return ""

    def _take(self, number: int, mask: int, cookie: int, name: str) -> None:
        if mask & IN_Q_OVERFLOW:
            self.lost = True
        directory = self.watched.get(number)
        if directory is None:
            return
        if mask & _ENDS_TOP:
            if directory is self.watched.top:
                self.lost = True
            elif mask & IN_IGNORED:
                self.watched.drop(directory)
            return
        if not name:
            return
        is_dir = bool(mask & IN_ISDIR)
        path = self._path_of(directory, name)
        if self.lost:
            return
        self.size += _size_of(path)
        upload = not is_dir and _is_upload(name)
        if mask & IN_MOVED_FROM:
            self._moved_from(directory, name, path, cookie, is_dir=is_dir, upload=upload)
        elif mask & IN_MOVED_TO:
            self._moved_to(directory, name, path, cookie, is_dir=is_dir, upload=upload)
        elif upload:
            return
        elif mask & IN_CREATE:
            self._settle_at(path)
            self._arrived(directory, name, path, is_dir=is_dir)
        elif mask & IN_DELETE:
            self._listed.discard(path)
            self._tell("removed", path, is_dir=is_dir)
            self._drop(directory.below.get(name) if is_dir else None)
        elif mask & (IN_MODIFY | IN_ATTRIB):
            self._tell("modified" if mask & IN_MODIFY else "attributes", path, is_dir=is_dir)

    def _moved_from(
        self, directory: Directory, name: str, path: str, cookie: int, *, is_dir: bool, upload: bool
    ) -> None:
        self._settle_at(path)
        self._listed.discard(path)
        below = directory.below.get(name) if is_dir else None
        self._moving[cookie] = _Moving(path, is_dir=is_dir, directory=below, upload=upload)

    def _moved_to(
        self, directory: Directory, name: str, path: str, cookie: int, *, is_dir: bool, upload: bool
    ) -> None:
        source = self._moving.pop(cookie, None)
        self._settle_at(path)
        replaced = directory.below.get(name) if is_dir else None
        if replaced is not None and (source is None or replaced is not source.directory):
            self._drop(replaced)
        if upload:
            if source is not None and not source.upload:
                self._tell("removed", source.path, is_dir=False)
            return
        if source is None or source.upload:
            self._arrived(directory, name, path, is_dir=is_dir)
            return
        self._tell("renamed", path, is_dir=is_dir, source=source.path)
        if source.directory is not None:
            self.watched.move(source.directory, name, directory)
            # One below it that was not found had its former name, and would stay unwatched.
            self.lost = self.lost or self._missed
        else:
            self._watch_later(directory, name, is_dir=is_dir)

    def _arrived(self, directory: Directory, name: str, path: str, *, is_dir: bool) -> None:
        if path in self._listed:
            self._listed.discard(path)
        else:
            self._tell("created", path, is_dir=is_dir)
        self._watch_later(directory, name, is_dir=is_dir)

    def _watch_later(self, directory: Directory, name: str, *, is_dir: bool) -> None:
        if is_dir and self._recursive and name not in directory.below:
            self._new.append((directory, name))

    def _settle_at(self, path: str) -> None:
        """Report what has moved away from here before what comes here."""
        for cookie, moving in self._moving.items():
            if moving.path == path:
                self._settle(cookie)
                return

    def _settle(self, cookie: int) -> None:
        moving = self._moving.pop(cookie)
        if not moving.upload:
            self._tell("removed", moving.path, is_dir=moving.is_dir)
        self._drop(moving.directory)

    def _drop(self, directory: Directory | None) -> None:
        if directory is not None:
            self.stale += self.watched.drop(directory)

    def _tell(self, kind: str, path: str, *, is_dir: bool, source: str | None = None) -> None:
        if kind in ("modified", "attributes"):
            if (kind, path) in self._told:
                return
            self._told.add((kind, path))
        else:
            self._told -= {("modified", path), ("attributes", path)}
        event: Event = {"kind": kind, "path": path, "dir": is_dir}
        if source is not None:
            event["from"] = source
        self._found.append(event)
