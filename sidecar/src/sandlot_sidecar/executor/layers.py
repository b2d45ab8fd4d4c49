"""The thin layer between image and upper: what the sandbox needs and the image lacks, or must not show."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

HOST_HIDDEN = (("tmp", 0o1777), ("run", 0o755), ("var/tmp", 0o1777))
MOUNT_POINTS = ("proc", "sys", "dev")


class Base:
    """Writes that layer into a directory; what cannot be hidden by a layer is left in `to_cover`."""

    def __init__(
        self, *, path: str, lowers: Sequence[str], rootless: bool, seen: dict[str, os.stat_result | None]
    ) -> None:
        """`seen`: what earlier layers over this image have found of it, added to here.

        The machine's own root changes while sandboxes lie over it: each must get the layer that its first one had, or
        a reset would be unequal by what another program has done.
        """
        self.path = path
        self.lowers = lowers
        self.to_cover: list[tuple[str, int]] = []
        self._seen = seen
        self._emptied: list[str] = []
        self._rootless = rootless
        self._opaque = "user.overlay.opaque" if rootless else "trusted.overlay.opaque"

    def find(self, relative: str) -> os.stat_result | None:
        """The image's own entry at a path as it was at first, not following a last symlink."""
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
        """Have a directory with the image's own mode and owner; None where the image has something else."""
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
        """Show an empty directory in place of the image's."""
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
        """Let the image's entry at a path not exist, also one that comes later."""
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
        """Show a file of ours in place of the image's."""
        parent, _, name = relative.rpartition("/")
        path = self.directory(parent)
        if path is None:
            return
        with open(f"{path}/{name}", "wb") as file:
            file.write(content)


def network_files(lowers: Sequence[str]) -> tuple[bytes, bytes]:
    """What /etc/resolv.conf of the machine and /etc/hosts of the image say now."""
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


def write_network_files(base: Base, *, resolv: bytes, hosts: bytes, hostname: str) -> None:
    """Have an /etc/resolv.conf, /etc/hosts and /etc/hostname that work in the sandbox."""
    base.file("etc/resolv.conf", resolv)
    base.file("etc/hosts", hosts.rstrip(b"\n") + f"\n127.0.1.1\t{hostname}\n".encode())
    base.file("etc/hostname", f"{hostname}\n".encode())
