"""Watches directories by inotify, in a job: the kernel takes paths of the sandbox, and the server reads the events."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import stat

from . import syscalls
from .errors import ExecutorError
from .file_request import path_of, real_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .replies import Answer

    Found = list[tuple[int, int, str]]

IN_MODIFY, IN_ATTRIB = 0x2, 0x4
IN_MOVED_FROM, IN_MOVED_TO = 0x40, 0x80
IN_CREATE, IN_DELETE = 0x100, 0x200
IN_DELETE_SELF, IN_MOVE_SELF = 0x400, 0x800
IN_UNMOUNT, IN_Q_OVERFLOW, IN_IGNORED = 0x2000, 0x4000, 0x8000
IN_ISDIR = 0x40000000
_IN_ONLYDIR, _IN_DONT_FOLLOW, _IN_EXCL_UNLINK = 0x01000000, 0x02000000, 0x04000000
_MASK = (
    IN_MODIFY | IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF
    | _IN_ONLYDIR | _IN_DONT_FOLLOW | _IN_EXCL_UNLINK
)  # fmt: skip

MOST_LOOKED_AT = 200_000  # entries of one request's directories, since code can make any number
MOST_ENTRIES = 2_000  # of new directories that are reported
KERNEL_FULL = (
    "the node's kernel watches no more directories: raise fs.inotify.max_user_watches there, or watch fewer"
)
# Without an own uid, a few hundred sandboxes would use up the node's instances for root, which the kubelet needs, too.
_UID = 0x70000000 | int.from_bytes(os.urandom(3), "big")


def is_watch(message: dict[str, Any]) -> bool:
    """Return whether a file request is one of these, which run in a job."""
    return message.get("op") == "watch"


def with_instance(
    message: dict[str, Any], fds: list[int], work: Callable[[], Answer]
) -> Callable[[], Answer]:
    """Return the work of a job: it has the request's inotify instance, or makes one before it is a user's."""

    def watch() -> Answer:
        message["instance"] = fds[0] if fds else _make_instance()
        return work()

    return watch


def _make_instance() -> int:
    """Make an inotify instance. Raises ExecutorError and OSError."""
    own = _become_own()
    try:
        return syscalls.check(syscalls.LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify_init1")
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        raise ExecutorError(
            "busy", "the node has no inotify instance left: raise fs.inotify.max_user_instances there"
        ) from error
    finally:
        if own:
            os.seteuid(0)
            # The change of credentials has cleared it.
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)


def _become_own() -> bool:
    """Take a uid that only this sandbox's instances count for; return False where the kernel allows none."""
    if os.geteuid() != 0:
        return False
    try:
        os.seteuid(_UID)
    except OSError:  # in a user namespace, whose instances are counted apart anyway
        return False
    return True


def do_watch(message: dict[str, Any]) -> Answer:
    """Watch a directory and, with `recursive`, all below it on its file system; or `more` directories below `path`.

    `most`: of directories. Answers each as [watch, index of its parent, name], a parent of -1 for `path` itself and
    each of `more`. `entries` are those of `more`: [index, name, whether a directory].
    """
    instance, path = int(message["instance"]), path_of(message)
    walk = _Walk(instance, most=int(message["most"]), recursive=bool(message.get("recursive")))
    more = message.get("more")
    if more is None:
        top = real_path(path)
        walk.watch(top, -1, top)
        walk.descend(entries=False)
        return walk.answer(top), [instance]
    for name in more:
        walk.watch_below(f"{path.rstrip('/')}/{name}", -1, name)
    walk.descend(entries=True)
    return walk.answer(path), []


class _Walk:
    """Watches directories, breadth first; each before it is listed, so that nothing made meanwhile is missed."""

    def __init__(self, instance: int, *, most: int, recursive: bool) -> None:
        self._instance = instance
        self._most = most
        self._recursive = recursive
        self._found: Found = []
        self._waiting: list[tuple[int, str, int]] = []  # index, path, device
        self._entries: list[tuple[int, str, bool]] = []
        self._looked_at = 0
        self._beyond = ""
        self._missed = False

    def answer(self, path: str) -> dict[str, Any]:
        return {
            "path": path,
            "found": self._found,
            "entries": self._entries,
            "beyond": self._beyond,  # of what there is more than this takes: "directories", "entries" or "kernel"
            "missed": self._missed,  # a directory was not there any more: it may have another name
        }

    def watch(self, path: str, parent: int, name: str) -> None:
        """Watch one directory. Raises OSError, and ExecutorError if the kernel takes no more."""
        device = os.stat(path).st_dev
        number = syscalls.LIBC.inotify_add_watch(self._instance, os.fsencode(path), ctypes.c_uint(_MASK))
        if number < 0 and ctypes.get_errno() == errno.ENOSPC:
            raise ExecutorError("too_large", KERNEL_FULL, field="path")
        syscalls.check(number, f"watch {path}")
        self._waiting.append((len(self._found), path, device))
        self._found.append((number, parent, name))

    def watch_below(self, path: str, parent: int, name: str) -> None:
        """Watch one directory below the first, unless it has gone or its user must not read it."""
        if len(self._found) >= self._most:
            self._beyond = self._beyond or "directories"
            return
        try:
            self.watch(path, parent, name)
        except FileNotFoundError:
            self._missed = True
        except ExecutorError:
            self._beyond = self._beyond or "kernel"
        except OSError:
            pass

    def descend(self, *, entries: bool) -> None:
        """Look into what is watched; report its `entries`, and watch its directories if all is."""
        if not entries and not self._recursive:
            return
        for index, path, device in self._waiting:  # grows meanwhile
            try:
                listing = os.scandir(path)
            except OSError:
                continue
            with listing:
                for entry in listing:
                    self._looked_at += 1
                    if self._looked_at > MOST_LOOKED_AT:
                        self._beyond = self._beyond or "entries"
                        return
                    self._take(entry, index, device, entries=entries)

    def _take(self, entry: os.DirEntry[str], index: int, device: int, *, entries: bool) -> None:
        try:
            is_directory = entry.is_dir(follow_symlinks=False)
            if entries and len(self._entries) < MOST_ENTRIES:
                self._entries.append((index, entry.name, is_directory))
            elif entries:
                self._beyond = self._beyond or "entries"
            if not is_directory or not self._recursive:
                return
            about = os.lstat(entry.path)
        except OSError:
            self._missed = True
            return
        if stat.S_ISDIR(about.st_mode) and about.st_dev == device:
            self.watch_below(entry.path, index, entry.name)
