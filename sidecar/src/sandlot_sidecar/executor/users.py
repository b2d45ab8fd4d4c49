"""Looks up users and groups in the sandbox's own /etc/passwd and /etc/group, read by hand and with bounds."""

from __future__ import annotations

import os
import stat

from .errors import ExecutorError

MAX_SIZE = 4 * 1024 * 1024
MAX_KEPT = 100
MAX_ID = 2**32 - 2
MAX_DIGITS = 10  # int() refuses thousands of them with an exception
MAX_NAME = 256  # a directory's listing has two for each entry
_default: User | None = None
_kept: dict[str, User] = {}
_kept_of: tuple[tuple[int, ...], ...] = ()


class User:
    """Who a command runs as."""

    __slots__ = ("gid", "groups", "home", "name", "uid")

    def __init__(self, *, uid: int, gid: int, groups: list[int], home: str, name: str | None) -> None:
        self.uid = uid
        self.gid = gid
        self.groups = groups
        self.home = home
        self.name = name


def set_default(user: User) -> None:
    """Who is meant when no user is named: the user of a container's image."""
    global _default
    _default = user
    _kept.clear()


def _records(path: str, fields: int) -> list[list[str]]:
    return [
        parts
        for line in _read(path).splitlines()
        if len(parts := line.split(":")) >= fields and len(parts[0]) <= MAX_NAME
    ]


def _version(path: str) -> tuple[int, ...]:
    try:
        info = os.stat(path)
    except OSError:
        return ()
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def _read(path: str) -> str:
    try:
        # Not blocking and only a regular file: user code may have put a pipe in its place.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_SIZE:
            return ""
        # No more than there is: a buffer of the largest size costs every op a mapping of its own.
        return os.read(fd, info.st_size).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
    finally:
        os.close(fd)


def _number(text: str) -> int | None:
    if len(text) > MAX_DIGITS or not (text.isascii() and text.isdigit()):
        return None
    number = int(text)
    return number if number <= MAX_ID else None


def resolve(user: str | int | None) -> User:
    """A name, a uid, `name:group` or `uid:gid`; None is the default, else root. Raises ExecutorError (field user).

    From memory while both files are the same: reading them again would cost each op 30 µs.
    """
    global _kept_of
    if user is None and _default is not None:
        return _default  # whatever the files say; a look at each costs 20 to 50 µs under gVisor
    versions = _version("/etc/passwd"), _version("/etc/group")
    if versions != _kept_of or len(_kept) >= MAX_KEPT:
        _kept.clear()
        _kept_of = versions
    key = str(user)
    found = _kept.get(key)
    if found is None:
        found = _kept[key] = _look_up(user)
    return found


def _look_up(user: str | int | None) -> User:
    if user is None and _default is not None:
        return _default
    if user is None or user in (0, "0", "root", ""):
        return by_uid(0)
    text = str(user)
    name, colon, group = text.partition(":")
    uid = _number(name)
    found = by_uid(uid) if uid is not None else _of_name(name)
    if colon:
        found.gid = resolve_group(group)
        found.groups = [found.gid]
    return found


def by_uid(uid: int) -> User:
    """The user of a number, also one that has no name."""
    for parts in _records("/etc/passwd", 6):
        if _number(parts[2]) == uid:
            return _user(parts)
    return User(uid=uid, gid=uid, groups=[uid], home="/root" if uid == 0 else "/", name=None)


def _of_name(name: str) -> User:
    for parts in _records("/etc/passwd", 6):
        if parts[0] == name and _number(parts[2]) is not None:
            return _user(parts)
    raise ExecutorError(
        "start_failed",
        f"no such user in the sandbox: {name}; add it to the image, or give a number",
        field="user",
    )


def _user(parts: list[str]) -> User:
    gid = _number(parts[3]) or 0
    groups = [gid]
    for record in _records("/etc/group", 4):
        number = _number(record[2])
        if number is not None and number != gid and parts[0] in record[3].split(","):
            groups.append(number)
    return User(uid=_number(parts[2]) or 0, gid=gid, groups=groups, home=parts[5] or "/", name=parts[0])


def resolve_group(group: str | int) -> int:
    """A group's name or gid; raises ExecutorError (field group)."""
    text = str(group)
    number = _number(text)
    if number is not None:
        return number
    for parts in _records("/etc/group", 3):
        if parts[0] == text and (gid := _number(parts[2])) is not None:
            return gid
    raise ExecutorError("bad_request", f"no such group in the sandbox: {text}", field="group")


def owner(user: str | int | None, group: str | int | None, *, new: bool = False) -> tuple[int, int]:
    """The uid and gid for a file; -1 leaves one as it is. Raises ExecutorError (field user or group)."""
    uid = gid = -1
    if new and _default is not None:
        uid, gid = _default.uid, _default.gid
    if user is not None:
        try:
            found = resolve(user)
        except ExecutorError as error:
            raise ExecutorError("bad_request", error.message, field=error.field) from error
        uid, gid = found.uid, found.gid
    if group is not None:
        gid = resolve_group(group)
    return uid, gid


class Names:
    """Names of uids and gids, read once for a listing."""

    def __init__(self) -> None:
        self.users = {
            number: p[0] for p in _records("/etc/passwd", 3) if (number := _number(p[2])) is not None
        }
        self.groups = {
            number: p[0] for p in _records("/etc/group", 3) if (number := _number(p[2])) is not None
        }
