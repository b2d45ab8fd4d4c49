"""File operations of a process whose root is the sandbox's root, so that no path can lead out of it."""

from __future__ import annotations

import errno
import os
import stat

from . import syscalls, users
from .delete_tree import delete_tree
from .errors import ExecutorError, from_os
from .file_documents import do_list, do_stat, document
from .file_replacement import do_abort, do_commit, do_create
from .file_request import SAFE, make_parents, mode_of, path_of, regular, set_owner
from .file_watch import do_watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FLAGS = os.O_ACCMODE | os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_APPEND


def do_open(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Open a regular file; `flags` are Linux O_ flags, default read-only."""
    path = path_of(message)
    flags = int(message.get("flags") or 0) & _FLAGS
    mode = mode_of(message)
    if message.get("parents") and flags & os.O_CREAT:
        make_parents(path, message)
    before = None
    try:
        before = os.stat(path)
    except OSError:
        pass
    if before is not None and not (stat.S_ISREG(before.st_mode) or stat.S_ISDIR(before.st_mode)):
        # Opening a device can have side effects.
        raise ExecutorError("permission", f"{path} is not a regular file", field="path")
    fd = os.open(path, flags | SAFE, 0o644 if mode is None else mode)
    try:
        info = regular(fd, path)
        if flags & os.O_CREAT and before is None:
            set_owner(message, target=fd)
            if mode is not None:
                os.fchmod(fd, mode)
            info = os.fstat(fd)
        return {"stat": document(path, info, users.Names())}, [fd]
    except BaseException:
        os.close(fd)
        raise


def do_mkdir(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Create a directory; with `parents` (default true) also missing parents, and an existing one is no error."""
    path = path_of(message).rstrip("/") or "/"
    parents = message.get("parents", True)
    mode = mode_of(message)
    if parents:
        make_parents(path, message)
    try:
        os.mkdir(path, 0o755 if mode is None else mode)
    except FileExistsError:
        if not parents or not os.path.isdir(path):
            raise
        return do_stat({"path": path})
    # mkdir's own mode is subject to the umask.
    os.chmod(path, 0o755 if mode is None else mode)
    set_owner(message, target=path)
    return do_stat({"path": path})


def do_move(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Move a file or directory; across the sandbox's file systems only a regular file."""
    source, target = path_of(message, "source"), path_of(message, "target")
    try:
        if message.get("overwrite", True):
            os.rename(source, target)
        else:
            syscalls.rename_noreplace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise from_os(error, field="source" if error.errno == errno.ENOENT else "target") from error
        if not message.get("overwrite", True) and os.path.lexists(target):
            raise ExecutorError(
                "exists", f"{target} exists; delete it, or pass overwrite", field="target"
            ) from error
        _copy_over(source, target, user=message.get("user"))
    return do_stat({"path": target, "follow": False})


def _copy_over(source: str, target: str, *, user: str | int | None) -> None:
    reader = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | SAFE)
    try:
        info = regular(reader, source)
        # A copy that a user makes belongs to that user, as any user's does.
        owner = {"user": user} if user is not None else {"owner": info.st_uid, "group": info.st_gid}
        answer, fds = do_create({"path": target, "mode": stat.S_IMODE(info.st_mode), **owner})
        try:
            while os.sendfile(fds[0], reader, None, 1 << 24):
                pass
            os.utime(fds[0], ns=(info.st_atime_ns, info.st_mtime_ns))
        except OSError:
            do_abort(answer)
            raise
        finally:
            os.close(fds[0])
        do_commit(answer)
        os.unlink(source)
    finally:
        os.close(reader)


def do_chmod(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Change mode and owner."""
    path = path_of(message)
    mode = mode_of(message)
    set_owner(message, target=path, new=False)
    if mode is not None:
        os.chmod(path, mode)
    return do_stat({"path": path})


def do_delete(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Delete a file, an empty directory, or with `recursive` a tree (run in a job: it changes directory)."""
    path = path_of(message).rstrip("/")
    if not path:
        raise ExecutorError("permission", "the root cannot be deleted", field="path")
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
    elif message.get("recursive"):
        parent, name = os.path.split(path)
        os.chdir(parent or "/")
        delete_tree(name)
    else:
        os.rmdir(path)
    return {}, []


def is_long(message: dict[str, Any]) -> bool:
    """Return whether an operation may take long and has to run in a job."""
    return message.get("op") == "move" or (message.get("op") == "delete" and bool(message.get("recursive")))


OPERATIONS = {
    "open": do_open,
    "create": do_create,
    "commit": do_commit,
    "abort": do_abort,
    "stat": do_stat,
    "list": do_list,
    "mkdir": do_mkdir,
    "move": do_move,
    "chmod": do_chmod,
    "delete": do_delete,
    "watch": do_watch,
}


def run(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Run one operation; return its answer and descriptors. Raises ExecutorError."""
    operation = OPERATIONS.get(str(message.get("op")))
    if operation is None:
        raise ExecutorError("bad_request", f"no such file operation: {message.get('op')}", field="op")
    try:
        return operation(message)
    except OSError as error:
        raise from_os(error, field="path") from error
