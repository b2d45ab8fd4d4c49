"""Writes the overlay layer above the image: files that the sandbox needs, and whiteouts of files to hide."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

HOST_HIDDEN = (("tmp", 0o1777), ("run", 0o755), ("var/tmp", 0o1777))
MOUNT_POINTS = ("proc", "sys", "dev")
_MAX_LINKS = 40  # as many as the kernel follows
_MAX_HOSTS = 1 << 20  # bytes
_MODE_AT_CREATION = 0o1755  # what the executor's umask and the kernel leave of a new directory's mode


class Entry:
    """What the image has at a path: its lstat, and the layers that it is in, by number: of a directory several."""

    __slots__ = ("info", "layers")

    def __init__(self, info: os.stat_result, layers: list[int]) -> None:
        self.info = info
        self.layers = layers


class BaseLayer:
    """Writes the layer into a directory; `to_cover` lists paths that need a mount to hide them."""

    def __init__(
        self, *, path: str, lowers: Sequence[str], rootless: bool, seen: dict[str, Entry | None]
    ) -> None:
        """`seen`: cached entries of the image, shared by all layers over it.

        The host's root may change under a sandbox: each new layer must equal the first one, or other programs' changes
        would fail the proof of a reset.
        """
        self.path = path
        self.lowers = lowers
        self.to_cover: list[tuple[str, int]] = []
        self._seen = seen
        self._emptied: list[str] = []
        self._rootless = rootless
        self._opaque = "user.overlay.opaque" if rootless else "trusted.overlay.opaque"

    def find(self, relative: str) -> os.stat_result | None:
        """Return the (cached) lstat of a path in the image, or None."""
        entry = self.entry(relative)
        return None if entry is None else entry.info

    def entry(self, relative: str) -> Entry | None:
        """Return the (cached) entry of a path in the image, or None."""
        if relative not in self._seen:
            self._seen[relative] = self._look(relative)
        return self._seen[relative]

    def _look(self, relative: str) -> Entry | None:
        """Look only into layers where all of the path above is a directory that counts, as an overlay does.

        Elsewhere it may be a link, which the kernel would follow out of the image.
        """
        above, found = os.path.dirname(relative), None
        parent = self.entry(above) if above else None
        if above and (parent is None or not stat.S_ISDIR(parent.info.st_mode)):
            return None
        for number in range(len(self.lowers)) if parent is None else parent.layers:
            path = os.path.join(self.lowers[number], relative)
            try:
                info = os.lstat(path)
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue
            if found is None:
                if _is_whiteout(info):
                    return None
                found = Entry(info, [number])
            elif stat.S_ISDIR(info.st_mode):
                found.layers.append(number)
            if not stat.S_ISDIR(info.st_mode) or self._is_opaque(path):
                break
        return found

    def _is_opaque(self, path: str) -> bool:
        try:
            return os.getxattr(path, self._opaque, follow_symlinks=False) == b"y"
        except OSError:
            return False

    def resolve(self, relative: str) -> str | None:
        """Return where a path leads inside the image, whether it exists or not; None if its links form a loop.

        The kernel would follow an image's absolute links to the files of this machine.
        """
        todo, done = relative.split("/")[::-1], list[str]()
        links = 0
        while todo:
            name = todo.pop()
            if name in ("", "."):
                continue
            if name == "..":
                del done[-1:]
                continue
            done.append(name)
            target = self._read_link("/".join(done))
            if target is None:
                continue
            links += 1
            if links > _MAX_LINKS:
                return None
            del done[0 if target.startswith("/") else -1 :]
            todo += target.split("/")[::-1]
        return "/".join(done)

    def _read_link(self, relative: str) -> str | None:
        found = self.find(relative)
        if found is None or not stat.S_ISLNK(found.st_mode):
            return None
        return os.readlink(self.paths(relative)[0])

    def paths(self, relative: str) -> list[str]:
        """Return where the image has a path, the uppermost layer first."""
        entry = self.entry(relative)
        return [] if entry is None else [os.path.join(self.lowers[each], relative) for each in entry.layers]

    def read(self, relative: str, *, limit: int) -> bytes:
        """Read the beginning of the image's file, b"" if it is none."""
        path = self.resolve(relative)
        paths = self.paths(path) if path else []
        if not paths:
            return b""
        try:
            # Only a regular file: opening a pipe would block.
            fd = os.open(paths[0], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return b""
        with open(fd, "rb") as file:
            return file.read(limit) if stat.S_ISREG(os.fstat(fd).st_mode) else b""

    def mount_point(self, name: str) -> None:
        """Create a directory at the top for a mount, also if the image has a link or a file there."""
        if self.directory(name) is None:
            os.mkdir(f"{self.path}/{name}")

    def ensure(self, relative: str, mode: int) -> None:
        """Create a directory that the image lacks; where a link leads to nothing, at its end."""
        path = self.resolve(relative)
        if path and self.find(path) is None:
            self.directory(path, mode)

    def directory(self, relative: str, mode: int = 0o755) -> str | None:
        """Create a directory with the image's mode and owner; return None if the image has a non-directory there."""
        path = self.path
        done = ""
        for name in relative.split("/"):
            done = os.path.join(done, name)
            path = os.path.join(path, name)
            found = self.find(done)
            if found is not None and not stat.S_ISDIR(found.st_mode):
                return None
            if not self._make_directory(path, stat.S_IMODE(found.st_mode) if found is not None else mode):
                continue
            if found is not None and not self._rootless and (found.st_uid or found.st_gid):
                os.chown(path, found.st_uid, found.st_gid)
        return path

    @staticmethod
    def _make_directory(path: str, mode: int) -> bool:
        """Create a directory with this mode; return whether it was not there. Few calls: under gVisor each counts."""
        try:
            os.mkdir(path, mode)
        except FileExistsError:
            return False
        if mode & ~_MODE_AT_CREATION:
            os.chmod(path, mode)
        return True

    def empty(self, relative: str, mode: int) -> None:
        """Replace the image's directory with an empty one."""
        path = self.directory(relative, mode)
        if path is None:
            return
        os.chmod(path, mode)
        self._emptied.append(f"{relative}/")
        if self.find(relative) is None:
            return
        try:
            os.setxattr(path, self._opaque, b"y")
        except OSError:
            self.to_cover.append((relative, mode))

    def hide(self, relative: str) -> None:
        """Hide a path of the image with a whiteout, also if the image creates it later."""
        if not relative or relative.startswith(tuple(self._emptied)):
            return
        while (parent := os.path.dirname(relative)) and self.find(parent) is None:
            relative = parent
        path = self.directory(parent) if parent else self.path
        name = os.path.basename(relative)
        if path is None or os.path.lexists(f"{path}/{name}"):
            return
        try:
            os.mknod(f"{path}/{name}", stat.S_IFCHR, os.makedev(0, 0))
        except OSError:
            self.to_cover.append((relative, 0o755))

    def file(self, relative: str, content: bytes) -> None:
        """Replace the image's file with this content."""
        parent, _, name = relative.rpartition("/")
        resolved = self.resolve(parent)
        path = self.path if resolved == "" else self.directory(resolved) if resolved else None
        if path is None:
            return
        # Without a file object, whose opening makes three calls more.
        fd = os.open(f"{path}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            while content:
                content = content[os.write(fd, content) :]
        finally:
            os.close(fd)


def _is_whiteout(info: os.stat_result) -> bool:
    return stat.S_ISCHR(info.st_mode) and info.st_rdev == 0


def read_resolv() -> bytes:
    """Return /etc/resolv.conf of the host, in a pod of its container."""
    try:
        with open("/etc/resolv.conf", "rb") as file:
            return file.read()
    except OSError:
        return b""


def read_hosts(base: BaseLayer | None) -> bytes:
    """Return /etc/hosts of the image below `base`; None is the current root, which in a pod is its container's."""
    base = base or BaseLayer(path="", lowers=["/"], rootless=False, seen={})
    hosts = base.read("etc/hosts", limit=_MAX_HOSTS)
    return hosts or b"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"


def write_network_files(base: BaseLayer, *, resolv: bytes, hosts: bytes, hostname: str) -> None:
    """Write an /etc/resolv.conf, /etc/hosts and /etc/hostname that work in the sandbox."""
    base.file("etc/resolv.conf", resolv)
    base.file("etc/hosts", hosts.rstrip(b"\n") + f"\n127.0.1.1\t{hostname}\n".encode())
    base.file("etc/hostname", f"{hostname}\n".encode())
