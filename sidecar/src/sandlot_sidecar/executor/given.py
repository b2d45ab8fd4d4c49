"""What a container's runtime has mounted into it, read once, before the first claim: each root gets it as its own.

Bound in as it is, user code would write to it outside of the writable layer: past the limit of the disk, seen by the
pod's other containers, and still there after a reset.
"""

from __future__ import annotations

import os
import stat

from . import syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from .layers import Base
    from .namespaces import Mount

MOST = 1 << 20  # bytes of a file that is copied
_FLAGS = {"nosuid": syscalls.MS_NOSUID, "nodev": syscalls.MS_NODEV, "noexec": syscalls.MS_NOEXEC}


class Given:
    """`copied`: files and directories of the root's own in their place. `closed`: bound in, but read-only."""

    def __init__(self, mounts: Iterable[Mount], *, image: str) -> None:
        """`mounts` that are not hidden; `image`: where the container's root is seen without its mounts."""
        self.copied: dict[str, tuple[os.stat_result, bytes]] = {}
        self.closed: set[str] = set()
        self.notes: list[str] = []
        for mount in mounts:
            self.closed.discard(mount.point)
            self.copied.pop(mount.point, None)
            if mount.writable:
                self._add(mount, image)

    def _add(self, mount: Mount, image: str) -> None:
        try:
            info = os.stat(mount.point)
        except OSError:
            return
        # The kernel shows a mounted namespace (nsfs) as an empty file, and refuses to read it.
        if stat.S_ISREG(info.st_mode) and info.st_size <= MOST and mount.kind != "nsfs":
            with open(mount.point, "rb") as file:
                self.copied[mount.point] = info, file.read(MOST)
        elif stat.S_ISDIR(info.st_mode) and _is_image(mount, image):
            self.copied[mount.point] = info, b""
        else:
            self.closed.add(mount.point)
            self.notes.append(f"root: {mount.point} is mounted from outside and is read-only in the sandbox")

    def write(self, base: Base) -> None:
        """Put the copies into the layer above the image; raises OSError."""
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
    """Whether it has nothing that the image lacks there: gVisor's own /tmp, a volume that the image declares."""
    names = sorted(os.listdir(mount.point))
    if mount.kind == "tmpfs" and not names:
        return True
    try:
        return names == sorted(os.listdir(f"{image}{mount.point}"))
    except OSError:
        return False


def close(target: str, mount: Mount) -> None:
    """Make a bind read-only; raises OSError."""
    kept = sum(flag for name, flag in _FLAGS.items() if name in mount.options.split(","))
    syscalls.mount(None, target, None, syscalls.MS_BIND | syscalls.MS_REMOUNT | syscalls.MS_RDONLY | kept)
