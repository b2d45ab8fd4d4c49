"""Looks up users and groups in the sandbox's own /etc/passwd and /etc/group, which it reads with size limits."""

from __future__ import annotations

import os
import stat

from .errors import ExecutorError

MAX_SIZE = 4 * 1024 * 1024
MAX_CACHED = 100
MAX_ID = 2**32 - 2
MAX_DIGITS = 10  # int() raises for thousands of digits
MAX_NAME = 256  # a directory listing has two per entry
_ROOT = (None, 0, "0", "root", "")
_default: User | None = None
_cache: dict[str, User] = {}
_cached_versions: tuple[tuple[int, ...], ...] = ()


class User:
    """The user, groups and home directory of a command."""

    __slots__ = ("gid", "groups", "home", "name", "uid")

    def __init__(self, *, uid: int, gid: int, groups: list[int], home: str, name: str | None) -> None:
        self.uid = uid
        self.gid = gid
        self.groups = groups
        self.home = home
        self.name = name


def set_default(user: User | None) -> None:
    """Set the user of commands that name none: the container image's user; None: root."""
    global _default
    _default = user
    _cache.clear()


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
        # Non-blocking, and only a regular file: user code may have replaced it with a pipe.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_SIZE:
            return ""
        # Read the actual size: a buffer of MAX_SIZE costs each op an mmap.
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
    """Resolve a name, uid, `name:group` or `uid:gid`; None is the default, else root. Raises ExecutorError.

    Cached while both files are unchanged: reading them again costs each op 30 µs.
    """
    global _cached_versions
    if user is None and _default is not None:
        return _default  # without a stat of the files, which costs 20 to 50 µs each under gVisor
    versions = _version("/etc/passwd"), _version("/etc/group")
    if versions != _cached_versions or len(_cache) >= MAX_CACHED:
        _cache.clear()
        _cached_versions = versions
    # One entry for all names of root: a runner looks it up before its first op does.
    key = str(0 if user in _ROOT else user)
    found = _cache.get(key)
    if found is None:
        found = _cache[key] = _look_up(user)
    return found


def _look_up(user: str | int | None) -> User:
    if user is None and _default is not None:
        return _default
    if user in _ROOT:
        return by_uid(0)
    text = str(user)
    name, colon, group = text.partition(":")
    uid = _number(name)
    found = by_uid(uid) if uid is not None else _by_name(name)
    if colon:
        gid = resolve_group(group)
        found.groups = [gid, *(number for number in found.groups if number not in (gid, found.gid))]
        found.gid = gid
    return found


def by_uid(uid: int) -> User:
    """Return the user of a uid; one that /etc/passwd does not list has no name and root's group, as in a container."""
    for parts in _records("/etc/passwd", 6):
        if _number(parts[2]) == uid:
            return _user(parts)
    return User(uid=uid, gid=0, groups=[0], home="/", name=None)


def _by_name(name: str) -> User:
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
    """Return the gid of a group given by name or gid; raises ExecutorError (field group)."""
    text = str(group)
    number = _number(text)
    if number is not None:
        return number
    for parts in _records("/etc/group", 3):
        if parts[0] == text and (gid := _number(parts[2])) is not None:
            return gid
    raise ExecutorError(
        "bad_request",
        f"no such group in the sandbox: {text}; add it to the image, or give a number",
        field="group",
    )


def acting(user: str | int, *, field: str = "user") -> User:
    """Resolve the user that a request names in `field`. Raises ExecutorError."""
    try:
        return resolve(user)
    except ExecutorError as error:
        raise ExecutorError(
            "bad_request", error.message, field=field if error.field == "user" else error.field
        ) from error


def owner(of: str | int | None, group: str | int | None, *, new: bool = False) -> tuple[int, int]:
    """Return the uid and gid for a file; -1 keeps the current one. Raises ExecutorError (field owner or group)."""
    uid = gid = -1
    if new and _default is not None:
        uid, gid = _default.uid, _default.gid
    if of is not None:
        found = acting(of, field="owner")
        uid, gid = found.uid, found.gid
    if group is not None:
        gid = resolve_group(group)
    return uid, gid


class Names:
    """User and group names by id, read once per listing."""

    def __init__(self) -> None:
        self.users = {
            number: p[0] for p in _records("/etc/passwd", 3) if (number := _number(p[2])) is not None
        }
        self.groups = {
            number: p[0] for p in _records("/etc/group", 3) if (number := _number(p[2])) is not None
        }
