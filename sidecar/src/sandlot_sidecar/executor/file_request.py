"""Parses the parameters that file operations share: path, mode, owner, and missing parent directories."""

from __future__ import annotations

import errno
import os
import stat

from . import users
from .errors import ExecutorError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Never block on a pipe, never acquire a controlling terminal, never leak into a runner.
SAFE = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def path_of(message: dict[str, Any], name: str = "path") -> str:
    """Return an absolute path of the request; raises ExecutorError."""
    path = message.get(name)
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        raise ExecutorError("bad_request", f"{name} must be an absolute path", field=name)
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise ExecutorError("bad_request", f"{name} must be encodable as UTF-8", field=name) from error
    return path


def real_path(path: str) -> str:
    """Resolve symlinks; raises OSError."""
    try:
        return os.path.realpath(path)
    except RecursionError as error:  # realpath recurses for each link of a chain
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error


def mode_of(message: dict[str, Any]) -> int | None:
    """Return the requested mode, or None; raises ExecutorError."""
    mode = message.get("mode")
    if mode is None:
        return None
    try:
        number = int(mode, 8) if isinstance(mode, str) else int(mode)
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number <= 0o7777:
        raise ExecutorError("bad_request", "mode must be octal digits up to 7777", field="mode")
    return number


def owner_of(message: dict[str, Any], *, new: bool) -> tuple[int, int]:
    """Return the requested owner's uid and gid; -1 leaves it. What a user makes is that user's already.

    Raises ExecutorError.
    """
    new = new and message.get("user") is None
    return users.owner(message.get("owner"), message.get("group"), new=new)


def set_owner(message: dict[str, Any], *, target: int | str, new: bool = True) -> None:
    """Set the requested owner on a path or descriptor; raises OSError and ExecutorError."""
    uid, gid = owner_of(message, new=new)
    if uid >= 0 or gid >= 0:
        os.chown(target, uid, gid)


def make_parents(path: str, message: dict[str, Any]) -> None:
    """Create missing parent directories with the requested owner; raises OSError."""
    parent = os.path.dirname(path)
    if os.path.isdir(parent):
        return
    missing = []
    while not os.path.lexists(parent):
        missing.append(parent)
        parent = os.path.dirname(parent)
    for name in reversed(missing):
        try:
            os.mkdir(name, 0o755)
        except FileExistsError:
            continue
        set_owner(message, target=name)


def regular(fd: int, path: str) -> os.stat_result:
    """Return the stat of an open file; raises ExecutorError unless it is a regular file."""
    info = os.fstat(fd)
    if stat.S_ISDIR(info.st_mode):
        raise ExecutorError("is_directory", f"{path} is a directory", field="path")
    if not stat.S_ISREG(info.st_mode):
        raise ExecutorError("permission", f"{path} is not a regular file", field="path")
    return info
