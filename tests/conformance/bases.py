"""Layers that several images begin with: busybox with a few users, as the smallest images have it."""

from __future__ import annotations

import tarfile

from tests.conformance.materials import Materials
from tests.local.oci import entry, layer, symlink

Entry = tuple[tarfile.TarInfo, bytes]

APPLETS = ("sh", "cat", "ls", "id", "env", "pwd", "echo", "true", "sleep", "stat", "mkdir", "rm", "test")
PASSWD = b"""root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
app:x:1000:1000:an app:/home/app:/bin/sh
homeless:x:1001:1000::/none:/bin/sh
nobody:x:65534:65534:nobody:/:/bin/false
"""
# As in Alpine's: root and app are members of groups that are not their own.
GROUP = b"""root:x:0:root
bin:x:1:root,daemon
app:x:1000:
video:x:44:app
staff:x:50:daemon,app
nobody:x:65534:
"""


def accounts(prefix: str = "etc") -> list[Entry]:
    """The files that name users and groups."""
    return [entry(f"{prefix}/passwd", PASSWD), entry(f"{prefix}/group", GROUP)]


def programs(materials: Materials, prefix: str = "bin") -> list[Entry]:
    """busybox under the names of its applets."""
    return [
        entry(f"{prefix}/busybox", materials.busybox(), mode=0o755),
        *(symlink(f"{prefix}/{name}", "busybox") for name in APPLETS),
    ]


def busybox(materials: Materials) -> bytes:
    """The usual directories, users and busybox."""
    return layer(
        *(entry(name) for name in ("bin", "etc", "home", "usr", "var")),
        entry("root", mode=0o700),
        entry("home/app", uid=1000, gid=1000, mode=0o750),
        entry("tmp", mode=0o1777),
        *accounts(),
        *programs(materials),
    )
