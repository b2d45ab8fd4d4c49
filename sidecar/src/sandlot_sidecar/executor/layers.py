"""Writes the overlay layer above the image: files that the sandbox needs, and whiteouts of files to hide."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

HOST_HIDDEN = (("tmp", 0o1777), ("run", 0o755), ("var/tmp", 0o1777))
MOUNT_POINTS = ("proc", "sys", "dev")


class BaseLayer:
    """Writes the layer into a directory; `to_cover` lists paths that need a mount to hide them."""

    def __init__(
        self, *, path: str, lowers: Sequence[str], rootless: bool, seen: dict[str, os.stat_result | None]
    ) -> None:
        """`seen`: cached stats of the image, shared by all layers over it.

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
        if relative not in self._seen:
            self._seen[relative] = self._look(relative)
        return self._seen[relative]

    def _look(self, relative: str) -> os.stat_result | None:
        for lower in self.lowers:
            try:
                return os.lstat(os.path.join(lower, relative))
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue
        return None

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
            if os.path.isdir(path):
                continue
            os.mkdir(path)
            os.chmod(path, stat.S_IMODE(found.st_mode) if found is not None else mode)
            if found is not None and not self._rootless:
                os.chown(path, found.st_uid, found.st_gid)
        return path

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
        path = self.directory(parent)
        if path is None:
            return
        with open(f"{path}/{name}", "wb") as file:
            file.write(content)


def network_files(lowers: Sequence[str]) -> tuple[bytes, bytes]:
    """Return the host's /etc/resolv.conf and the image's /etc/hosts."""
    resolv = b""
    try:
        with open("/etc/resolv.conf", "rb") as file:
            resolv = file.read()
    except OSError:
        pass
    hosts = b"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
    for lower in lowers:
        try:
            with open(os.path.join(lower, "etc/hosts"), "rb") as file:
                hosts = file.read() or hosts
            break
        except OSError:
            continue
    return resolv, hosts


def write_network_files(base: BaseLayer, *, resolv: bytes, hosts: bytes, hostname: str) -> None:
    """Write an /etc/resolv.conf, /etc/hosts and /etc/hostname that work in the sandbox."""
    base.file("etc/resolv.conf", resolv)
    base.file("etc/hosts", hosts.rstrip(b"\n") + f"\n127.0.1.1\t{hostname}\n".encode())
    base.file("etc/hostname", f"{hostname}\n".encode())
