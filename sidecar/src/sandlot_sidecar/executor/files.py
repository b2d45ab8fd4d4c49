"""File operations, done by a process whose root is the sandbox's root: no path can lead out of it."""

from __future__ import annotations

import errno
import os
import stat

from . import syscalls, users
from .errors import ExecutorError, from_os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_LIMIT = 10_000
PAGE = 1 << 20  # bytes of names and link targets after which a page of a listing ends
TEMPORARY = ".sandlot-"
# Never wait for a pipe's other end, never get a terminal, never leak into a runner.
_SAFE = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FLAGS = os.O_ACCMODE | os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_APPEND


def _path(message: dict[str, Any], name: str = "path") -> str:
    path = message.get(name)
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        raise ExecutorError("bad_request", f"{name} must be an absolute path", field=name)
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise ExecutorError("bad_request", f"{name} is not a path", field=name) from error
    return path


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except RecursionError as error:  # it calls itself for each link of a chain
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error


def _mode(message: dict[str, Any]) -> int | None:
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


def _own(message: dict[str, Any], *, target: int | str, new: bool = True) -> None:
    uid, gid = users.owner(message.get("user"), message.get("group"), new=new)
    if uid >= 0 or gid >= 0:
        os.chown(target, uid, gid)


def document(
    path: str, info: os.stat_result, names: users.Names, *, full: str | None = None
) -> dict[str, Any]:
    """The contract's stat document."""
    kind = "other"
    target = None
    if stat.S_ISREG(info.st_mode):
        kind = "file"
    elif stat.S_ISDIR(info.st_mode):
        kind = "dir"
    elif stat.S_ISLNK(info.st_mode):
        kind = "symlink"
        try:
            target = os.readlink(full or path)
        except OSError:
            target = None
    return {
        "path": path,
        "type": kind,
        "size": info.st_size,
        "mode": f"{stat.S_IMODE(info.st_mode):04o}",
        "uid": info.st_uid,
        "gid": info.st_gid,
        "user": names.users.get(info.st_uid),
        "group": names.groups.get(info.st_gid),
        "mtime": info.st_mtime,
        "target": target,
    }


def _make_parents(path: str, message: dict[str, Any]) -> None:
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
        _own(message, target=name)


def _regular(fd: int, path: str) -> os.stat_result:
    info = os.fstat(fd)
    if stat.S_ISDIR(info.st_mode):
        raise ExecutorError("is_directory", f"{path} is a directory", field="path")
    if not stat.S_ISREG(info.st_mode):
        raise ExecutorError("permission", f"{path} is not a regular file", field="path")
    return info


def do_open(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Open a regular file: `flags` is a sum of Linux O_ numbers, default read only."""
    path = _path(message)
    flags = int(message.get("flags") or 0) & _FLAGS
    mode = _mode(message)
    if message.get("parents") and flags & os.O_CREAT:
        _make_parents(path, message)
    before = None
    try:
        before = os.stat(path)
    except OSError:
        pass
    if before is not None and not (stat.S_ISREG(before.st_mode) or stat.S_ISDIR(before.st_mode)):
        # Opening a device can have an effect of its own.
        raise ExecutorError("permission", f"{path} is not a regular file", field="path")
    fd = os.open(path, flags | _SAFE, 0o644 if mode is None else mode)
    try:
        info = _regular(fd, path)
        if flags & os.O_CREAT and before is None:
            _own(message, target=fd)
            if mode is not None:
                os.fchmod(fd, mode)
            info = os.fstat(fd)
        return {"stat": document(path, info, users.Names())}, [fd]
    except BaseException:
        os.close(fd)
        raise


def do_create(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Make an empty neighbour of the target to write to; `commit` renames it over the target."""
    path = _real(_path(message))
    mode = _mode(message)
    uid, gid = users.owner(message.get("user"), message.get("group"))
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        there = None
        uid, gid = users.owner(message.get("user"), message.get("group"), new=True)
    if there is not None:
        if stat.S_ISDIR(there.st_mode):
            raise ExecutorError("is_directory", f"{path} is a directory", field="path")
        if not stat.S_ISREG(there.st_mode):
            raise ExecutorError("exists", f"{path} is there and is not a regular file", field="path")
        if mode is None:
            mode = stat.S_IMODE(there.st_mode)
    if message.get("parents"):
        _make_parents(path, message)
    parent = os.path.dirname(path)
    for _ in range(100):
        temporary = f"{parent.rstrip('/')}/{TEMPORARY}{os.urandom(8).hex()}"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o600)
        except FileExistsError:
            continue
        break
    else:
        raise ExecutorError("exists", "no temporary name is free")
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
        # In a user namespace the image's owner may have no number.
        if error.errno not in (errno.EINVAL, errno.EPERM):
            raise


def do_commit(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Rename the finished neighbour over the target."""
    path, temporary = _real(_path(message)), _temporary(message)
    try:
        os.rename(temporary, path)
    except OSError:
        do_abort(message)
        raise
    return {"path": path}, []


def do_abort(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Remove the neighbour."""
    try:
        os.unlink(_temporary(message))
    except FileNotFoundError:
        pass
    return {}, []


def _temporary(message: dict[str, Any]) -> str:
    temporary = _path(message, "temp")
    if not os.path.basename(temporary).startswith(TEMPORARY):
        raise ExecutorError("bad_request", "temp is not a name that create gave", field="temp")
    return temporary


def do_stat(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """One stat document; `follow` (default true) follows a last symlink."""
    path = _path(message)
    info = os.stat(path) if message.get("follow", True) else os.lstat(path)
    return {"stat": document(path, info, users.Names())}, []


def do_list(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Stat documents of a directory's entries by name; `cursor` is the last name of the page before."""
    path = _path(message)
    limit = int(message.get("limit") or DEFAULT_LIMIT)
    cursor = message.get("cursor")
    # All of it for each page: of the most files that a sandbox may hold (held.MOST) that takes 0.17 s, and a page of
    # 10,000 documents 0.27 s (AMD EPYC, 2026-11-25).
    names = os.listdir(path)
    if cursor is not None:
        names = [name for name in names if name > cursor]
    names.sort()
    known = users.Names()
    entries = []
    size = count = 0
    for name in names[:limit]:
        count += 1
        full = f"{path.rstrip('/')}/{name}"
        try:
            entry = document(full, os.lstat(full), known)
        except FileNotFoundError:
            continue
        entries.append(entry)
        size += sum(len(os.fsencode(entry[key] or "")) for key in ("path", "target", "user", "group"))
        if size >= PAGE:  # 10,000 long names and targets are more than a message may have
            break
    return {"entries": entries, "cursor": names[count - 1] if 0 < count < len(names) else None}, []


def do_mkdir(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Make a directory; with `parents` (default true) also those above, and one that is there is fine."""
    path = _path(message).rstrip("/") or "/"
    parents = message.get("parents", True)
    mode = _mode(message)
    if parents:
        _make_parents(path, message)
    try:
        os.mkdir(path, 0o755 if mode is None else mode)
    except FileExistsError:
        if not parents or not os.path.isdir(path):
            raise
        return do_stat({"path": path})
    # mkdir's own mode is subject to the umask.
    os.chmod(path, 0o755 if mode is None else mode)
    _own(message, target=path)
    return do_stat({"path": path})


def do_move(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Rename; across the sandbox's file systems only a regular file can be moved."""
    source, target = _path(message, "source"), _path(message, "target")
    try:
        if message.get("overwrite", True):
            os.rename(source, target)
        else:
            syscalls.rename_noreplace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise from_os(error, field="source" if error.errno == errno.ENOENT else "target") from error
        if not message.get("overwrite", True) and os.path.lexists(target):
            raise ExecutorError("exists", f"{target} is there", field="target") from error
        _copy_over(source, target)
    return do_stat({"path": target, "follow": False})


def _copy_over(source: str, target: str) -> None:
    reader = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | _SAFE)
    try:
        info = _regular(reader, source)
        owner = {"user": info.st_uid, "group": info.st_gid}
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
    path = _path(message)
    mode = _mode(message)
    _own(message, target=path, new=False)
    if mode is not None:
        os.chmod(path, mode)
    return do_stat({"path": path})


def do_delete(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Delete a file, an empty directory, or with `recursive` a tree (the caller forks for that)."""
    path = _path(message).rstrip("/")
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
    """Whether an operation may take so long that the executor must not wait for it."""
    return message.get("op") == "move" or (message.get("op") == "delete" and bool(message.get("recursive")))


def delete_tree(name: str) -> None:
    """Delete from the working directory, without following links and without a limit of depth; comes back."""
    stack = [name]
    down = True
    while stack:
        if down:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(stack[-1], flags)
            os.fchdir(fd)
            os.close(fd)
        directories = []
        with os.scandir(".") as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
                    break
                os.unlink(entry.name)
        if directories:
            stack.append(directories[0])
            down = True
            continue
        os.chdir("..")
        os.rmdir(stack.pop())
        down = False


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
}


def run(message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Do one operation; the answer and the descriptors that go with it. Raises ExecutorError."""
    operation = OPERATIONS.get(str(message.get("op")))
    if operation is None:
        raise ExecutorError("bad_request", f"no such file operation: {message.get('op')}", field="op")
    try:
        return operation(message)
    except OSError as error:
        raise from_os(error, field="path") from error
