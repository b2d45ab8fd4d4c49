"""Replaces a file atomically: the caller writes a temporary file beside it, which is then renamed over it."""

from __future__ import annotations

import errno
import os
import stat

from .errors import ExecutorError
from .file_request import SAFE, make_parents, mode_of, owner_of, path_of, real_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TEMPORARY = ".sandlot-"


def do_create(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Create an empty temporary file beside the target; `commit` renames it over the target."""
    path = real_path(path_of(message))
    mode = mode_of(message)
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        there = None
    uid, gid = owner_of(message, new=there is None)
    if there is not None:
        if stat.S_ISDIR(there.st_mode):
            raise ExecutorError("is_directory", f"{path} is a directory", field="path")
        if not stat.S_ISREG(there.st_mode):
            raise ExecutorError("exists", f"{path} exists and is not a regular file", field="path")
        if message.get("user") is not None and not os.access(path, os.W_OK):
            # The rename needs only the directory's permission, and would replace a file that its user may not write.
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if mode is None:
            mode = stat.S_IMODE(there.st_mode)
    if message.get("parents"):
        make_parents(path, message)
    parent = os.path.dirname(path)
    for _ in range(100):
        temporary = f"{parent.rstrip('/')}/{TEMPORARY}{os.urandom(8).hex()}"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE, 0o600)
        except FileExistsError:
            continue
        break
    else:
        raise ExecutorError("exists", f"cannot create a temporary file in {parent}: 100 names were taken")
    try:
        if uid >= 0 or gid >= 0:
            os.fchown(fd, uid, gid)
        elif there is not None:
            _keep_owner(fd, there)
        os.fchmod(fd, 0o644 if mode is None else mode)
    except BaseException:
        os.close(fd)
        os.unlink(temporary)
        raise
    return {"temp": temporary, "path": path}, [fd]


def _keep_owner(fd: int, there: os.stat_result) -> None:
    try:
        os.fchown(fd, there.st_uid, there.st_gid)
    except OSError as error:
        # In a user namespace the image's owner may not be mapped.
        if error.errno not in (errno.EINVAL, errno.EPERM):
            raise


def do_commit(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Rename the temporary file over the target."""
    path, temporary = real_path(path_of(message)), _temporary(message)
    try:
        os.rename(temporary, path)
    except OSError:
        do_abort(message)
        raise
    return {"path": path}, []


def do_abort(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Remove the temporary file."""
    try:
        os.unlink(_temporary(message))
    except FileNotFoundError:
        pass
    return {}, []


def _temporary(message: dict[str, Any]) -> str:
    temporary = path_of(message, "temp")
    if not os.path.basename(temporary).startswith(TEMPORARY):
        raise ExecutorError("bad_request", "temp must be a path that `create` returned", field="temp")
    return temporary
