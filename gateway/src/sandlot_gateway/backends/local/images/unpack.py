"""Unpacks an image's layers into one directory, which no entry can escape."""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
import tarfile
from collections.abc import Callable
from typing import IO, cast

from ..trees import remove_tree
from .errors import ImageError

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_LINKS = 40  # as many as the kernel follows
_XATTR = "SCHILY.xattr."
_NANOSECONDS = 1_000_000_000


class _Rest:
    """A stream of which the first bytes have been read."""

    def __init__(self, first: bytes, stream: IO[bytes]) -> None:
        self._first = first
        self._stream = stream

    def read(self, size: int) -> bytes:
        """Return at most so many bytes; the first ones by themselves."""
        first, self._first = self._first, b""
        return first or self._stream.read(size)


class Unpacker:
    """Applies layers in order to `root`, a new directory without other writers.

    As root it keeps owners and extended attributes; otherwise everything belongs to this user. It never creates
    devices, because an image's block device would open the machine's disk.
    """

    def __init__(
        self,
        root: str,
        *,
        max_bytes: int = 64 << 30,
        max_entries: int = 4_000_000,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._root = root
        self._bytes_left = max_bytes
        self._entries_left = max_entries
        self._stopped = stopped
        self._owner = os.geteuid() == 0
        self._parents: dict[str, str] = {}  # directory as named in the tar → real directory
        self._written: set[str] = set()  # real paths of this layer, which its own whiteouts spare
        self._above: set[str] = set()  # the parent directories of `_written`
        self._times: dict[str, int] = {}  # set last, because each new entry changes its directory's time

    def layer(self, stream: IO[bytes]) -> None:
        """Apply one uncompressed tar. Raises ImageError, tarfile.TarError or OSError."""
        self._written.clear()
        self._above.clear()
        first = stream.read(1)
        if not first:
            return  # some builders write nothing at all for a layer without files
        stream = cast("IO[bytes]", _Rest(first, stream))
        with tarfile.open(fileobj=stream, mode="r|", errorlevel=2) as archive:
            while (member := archive.next()) is not None:
                if self._stopped():
                    raise ImageError("the gateway is stopping", error_type="UNAVAILABLE")
                self._entries_left -= 1
                self._bytes_left -= member.size if member.isreg() else 0
                if self._entries_left < 0 or self._bytes_left < 0:
                    raise ImageError("the image is larger than this machine accepts: use a smaller one")
                try:
                    self._entry(archive, member)
                except ValueError as error:
                    raise ImageError(f"an entry with the unusable name {member.name!r}") from error
                # TarFile keeps every header that it has read, and a large layer has millions.
                archive.members.clear()  # pyright: ignore[reportAttributeAccessIssue]

    def finish(self) -> None:
        for path, mtime in self._times.items():
            if os.path.isdir(path) and not os.path.islink(path):
                os.utime(path, ns=(mtime, mtime))

    def ensure_directory(self, name: str) -> None:
        """Create a directory if nothing is there, as a container runtime does with the working directory."""
        self._resolve(_clean(name), replace=False)

    def _entry(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        name = _clean(member.name)
        directory, base = posixpath.split(name)
        if not base:
            if member.isdir():
                self._dress(self._root, member)
            return
        parent = self._directory(directory)
        path = os.path.join(parent, base)
        if base == _OPAQUE:
            for child in os.listdir(parent):
                self._white_out(os.path.join(parent, child))
        elif base.startswith(_WHITEOUT):
            hidden = base.removeprefix(_WHITEOUT)
            # `.wh..` and `.wh...` would name the directory itself and its parent.
            if hidden not in ("", ".", "..") and not hidden.startswith(_WHITEOUT):
                self._white_out(os.path.join(parent, hidden))
        else:
            self._make(archive, member, path)
            self._written.add(path)
            while parent not in self._above and len(parent) > len(self._root):
                self._above.add(parent)
                parent = os.path.dirname(parent)

    def _make(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
        if member.isdir():
            if not _is_directory(path):
                self._remove(path)
                os.mkdir(path, 0o700)
            self._dress(path, member)
            return
        if member.islnk():
            target = self._link_target(member.linkname)
            if target == path:
                return
            self._remove(path)
            try:
                os.link(target, path, follow_symlinks=False)
            except FileNotFoundError as error:
                raise ImageError(f"{member.name}: a hard link to the missing {member.linkname}") from error
            if not os.path.islink(path):
                self._dress(path, member)
            return
        if member.issym():
            self._remove(path)
            os.symlink(member.linkname, path)
            self._own(path, member)
            mtime = _mtime(member)
            os.utime(path, ns=(mtime, mtime), follow_symlinks=False)
        elif member.isreg():
            self._remove(path)
            self._write(archive, member, path)
        elif member.isfifo():
            self._remove(path)
            os.mkfifo(path, 0o600)
            self._dress(path, member)

    def _write(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
        source = archive.extractfile(member)
        if source is None:
            raise ImageError(f"{member.name}: has no contents in its layer")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        self._dress(path, member)

    def _dress(self, path: str, member: tarfile.TarInfo) -> None:
        """Set owner, mode, extended attributes and time of anything but a symlink."""
        self._own(path, member)
        mode = stat.S_IMODE(member.mode)
        if not self._owner:
            # Otherwise this user could neither read the layer's files nor remove the image.
            mode |= 0o700 if member.isdir() else 0o400
        os.chmod(path, mode)
        for key, value in member.pax_headers.items():
            if key.startswith(_XATTR) and self._owner and _is_kept(name := key.removeprefix(_XATTR)):
                try:
                    os.setxattr(path, name, value.encode("utf-8", "surrogateescape"))
                except OSError:  # a file system without such attributes
                    continue
        mtime = _mtime(member)
        if member.isdir():
            self._times[path] = mtime
        else:
            os.utime(path, ns=(mtime, mtime))

    def _own(self, path: str, member: tarfile.TarInfo) -> None:
        if self._owner:
            os.chown(path, member.uid, member.gid, follow_symlinks=False)

    def _link_target(self, linkname: str) -> str:
        directory, base = posixpath.split(_clean(linkname))
        if not base:
            raise ImageError(f"a hard link to {linkname!r}, which is no file")
        return os.path.join(self._directory(directory), base)

    def _directory(self, name: str) -> str:
        """Return a name's real directory, resolved inside the image: symlinks stay below the root."""
        known = self._parents.get(name)
        if known is None:
            known = self._parents[name] = self._resolve(name)
        return known

    def _resolve(self, name: str, *, replace: bool = True) -> str:
        todo = [part for part in name.split("/") if part][::-1]
        done: list[str] = []
        links = 0
        while todo:
            part = todo.pop()
            if part == ".":
                continue
            if part == "..":
                del done[-1:]
                continue
            path = os.path.join(self._root, *done, part)
            try:
                mode = os.lstat(path).st_mode
            except FileNotFoundError:
                _make_directory(path)
                done.append(part)
                continue
            if stat.S_ISDIR(mode):
                done.append(part)
                continue
            if not stat.S_ISLNK(mode):
                if not replace:
                    return path
                # A later layer may replace a file by a directory without naming it.
                self._remove(path)
                _make_directory(path)
                done.append(part)
                continue
            links += 1
            if links > _LINKS:
                raise ImageError(f"{name}: too many symbolic links")
            target = os.readlink(path)
            if target.startswith("/"):
                done.clear()
            todo.extend([part for part in target.split("/") if part][::-1])
        return os.path.join(self._root, *done)

    def _white_out(self, path: str) -> None:
        """Remove what earlier layers wrote there, but not what this layer wrote."""
        if path in self._above or (path in self._written and _is_directory(path)):
            for child in os.listdir(path):
                self._white_out(os.path.join(path, child))
        elif path not in self._written:
            self._remove(path)

    def _remove(self, path: str) -> None:
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return
        if stat.S_ISDIR(mode):
            remove_tree(path)
        else:
            os.unlink(path)
        if not stat.S_ISREG(mode):
            self._parents.clear()  # cached paths through it are stale now


def _clean(name: str) -> str:
    """Return the path relative to the image's root; `..` cannot climb above it."""
    return posixpath.normpath("/" + name).lstrip("/")


def _make_directory(path: str) -> None:
    os.mkdir(path)
    os.chmod(path, 0o755)  # whatever this process's umask


def _is_kept(xattr: str) -> bool:
    """Return whether an image may set it. Overlay's own would redirect lookups out of the image."""
    return xattr == "security.capability" or (
        xattr.startswith("user.") and not xattr.startswith("user.overlay.")
    )


def _mtime(member: tarfile.TarInfo) -> int:
    """Return the time in nanoseconds, which a float cannot hold; 0 for one that file systems may not store."""
    whole, point, fraction = member.pax_headers.get("mtime", "").partition(".")
    try:
        if point and fraction.isdecimal():
            found = int(whole) * _NANOSECONDS + int(fraction[:9].ljust(9, "0"))
        else:
            found = int(member.mtime) * _NANOSECONDS
    except (ValueError, OverflowError):
        return 0
    return found if 0 <= found < 1 << 63 else 0


def _is_directory(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False
