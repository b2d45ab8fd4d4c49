"""What a sandbox gets of the machine's GPUs: device files, and the driver's files in a directory of their own.

The driver's libraries are not copied to the image's directories: they would hide files of the image, and their place
differs between distributions. This directory is where device plugins of Kubernetes mount them, too.
"""

from __future__ import annotations

import os

from . import syscalls
from .errors import SetupError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PLACE = "usr/local/nvidia"  # `server/environment.py` names it to programs
_DIRECTORIES = ("bin", "lib")


class Gpus:
    """The config's `root.gpus`: devices by their names below /dev, files and links by their paths below PLACE."""

    __slots__ = ("devices", "files", "links")

    def __init__(self, spec: dict[str, Any]) -> None:
        """Read the config. Raises SetupError."""
        self.devices: dict[str, str] = _texts(spec, "devices")
        self.files: dict[str, str] = _texts(spec, "files")
        self.links: dict[str, str] = _texts(spec, "links")

    def mount_driver(self, target: str) -> None:
        """Mount the driver's files, read-only, at an existing directory; raises OSError."""
        flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
        syscalls.mount("driver", target, "tmpfs", flags, "size=1m,mode=755")
        for name in _DIRECTORIES:
            os.mkdir(f"{target}/{name}", 0o755)
        os.symlink("lib", f"{target}/lib64")  # images made for GPUs name both in LD_LIBRARY_PATH
        for path, source in self.files.items():
            os.close(os.open(f"{target}/{path}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
            syscalls.mount(source, f"{target}/{path}", None, syscalls.MS_BIND)
        for path, name in self.links.items():
            os.symlink(name, f"{target}/{path}")
        syscalls.make_read_only(target)


def _texts(spec: dict[str, Any], name: str) -> dict[str, str]:
    found = spec.get(name) or {}
    if not isinstance(found, dict) or not all(
        isinstance(text, str) for pair in found.items() for text in pair
    ):
        raise SetupError(f"root.gpus.{name} must be an object with strings")
    return found
