"""Copies what the runtime has mounted into a pod's container, once, before the first claim, for every root.

With a writable bind mount, user code could write outside the writable layer: beyond the disk limit, visible to the
pod's other containers, and kept after a reset.
"""

from __future__ import annotations

import os
import stat

from . import syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from .layers import BaseLayer
    from .namespaces import Mount

MAX_COPY = 1 << 20  # bytes of the largest file that is copied
_FLAGS = {"nosuid": syscalls.MS_NOSUID, "nodev": syscalls.MS_NODEV, "noexec": syscalls.MS_NOEXEC}


class ContainerMounts:
    """A container's writable mounts: `copied` into the root, or bound into it as `read_only`."""

    def __init__(self, mounts: Iterable[Mount], *, image: str) -> None:
        """`mounts`: those that are not hidden. `image`: a bind of the container's root without its mounts."""
        self.copied: dict[str, tuple[os.stat_result, bytes]] = {}
        self.read_only: set[str] = set()
        self.notes: list[str] = []
        for mount in mounts:
            self.read_only.discard(mount.point)
            self.copied.pop(mount.point, None)
            if mount.writable:
                self._add(mount, image)

    def _add(self, mount: Mount, image: str) -> None:
        try:
            info = os.stat(mount.point)
        except OSError:
            return
        # A mounted namespace (nsfs) looks like an empty file, but reading it fails.
        if stat.S_ISREG(info.st_mode) and info.st_size <= MAX_COPY and mount.kind != "nsfs":
            with open(mount.point, "rb") as file:
                self.copied[mount.point] = info, file.read(MAX_COPY)
        elif stat.S_ISDIR(info.st_mode) and _is_image(mount, image):
            self.copied[mount.point] = info, b""
        else:
            self.read_only.add(mount.point)
            self.notes.append(f"root: {mount.point} is mounted from outside and is read-only in the sandbox")

    def write(self, base: BaseLayer) -> None:
        """Write the copies into the layer above the image; raises OSError."""
        for point, (info, content) in self.copied.items():
            path = point.lstrip("/")
            if stat.S_ISDIR(info.st_mode):
                made = base.directory(path)
            else:
                base.file(path, content)
                made = f"{base.path}/{path}"
            if made is not None and os.path.lexists(made):
                os.chown(made, info.st_uid, info.st_gid)
                os.chmod(made, stat.S_IMODE(info.st_mode))


def _is_image(mount: Mount, image: str) -> bool:
    """Return whether a mount has no more than the image: gVisor's own /tmp, or a volume that the image declares."""
    names = sorted(os.listdir(mount.point))
    if mount.kind == "tmpfs" and not names:
        return True
    try:
        return names == sorted(os.listdir(f"{image}{mount.point}"))
    except OSError:
        return False


def remount_read_only(target: str, mount: Mount) -> None:
    """Make a bind mount read-only; raises OSError."""
    kept = sum(flag for name, flag in _FLAGS.items() if name in mount.options.split(","))
    syscalls.mount(None, target, None, syscalls.MS_BIND | syscalls.MS_REMOUNT | syscalls.MS_RDONLY | kept)
