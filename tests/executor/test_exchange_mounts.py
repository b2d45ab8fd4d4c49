"""What an exchange of the root leaves beside it: the same mounts, no keys, no sockets; what the kernel refuses of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.executor.conftest import Box, Enter, Make, Start
from tests.executor.container import NEEDS_RUNC
from tests.executor.driver import Refused
from tests.executor.images import image_of, two_images
from tests.executor.test_claimed_image import HOST
from tests.executor.test_exchange import lay, mounts_of, named, tell

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces, mounts and cgroups"),
]

# Adds a key to the session's keyring, or says which one is there.
KEYS = """
import ctypes, os, sys
call, (add, keyctl) = ctypes.CDLL(None).syscall, {"x86_64": (248, 250), "aarch64": (217, 219)}[os.uname().machine]
session, search = ctypes.c_int(-3), 10
if sys.argv[1:]:
    assert call(add, b"user", b"planted", b"x", ctypes.c_size_t(1), session) > 0
print(call(keyctl, search, session, b"user", b"planted", 0) > 0)
"""
# Stands for a mount that the kernel refuses, in the sidecar's namespace.
REFUSES = """
from sandlot_sidecar.executor import namespaces
def refuse(home):
    home.enter_original_mounts()
    raise PermissionError(1, "refused")
namespaces.Home.prepare_empty_mounts = refuse
"""


@pytest.fixture
def images() -> Iterator[Path]:
    with two_images() as found:
        yield found


@pytest.mark.parametrize("point", ["/dev/shm", "/proc/fs"])
def test_another_mount_beside_the_root_has_it_built_anew(start: Box, images: Path, point: str) -> None:
    """Code cannot mount: somebody else has to."""
    box = start()
    (init,) = named(box, "init")
    command = ["nsenter", "-t", str(init), "-m", "--", "mount", "-t", "tmpfs", "planted", point]
    subprocess.run(command, check=True)
    assert not lay(box, image_of(images, "one"))
    assert b"planted" not in box.run("cat /proc/self/mountinfo").stdout
    assert box.ask("reset")["equal"]
    assert box.ask("check")["fresh"]
    assert lay(box, image_of(images, "two"))


def test_a_shared_mount_below_an_image_stays_where_it_is(start: Box, images: Path) -> None:
    """A copy of it is its peer, and to unmount the copy unmounts what is below it everywhere."""
    shared = images / "one/rootfs/shared"
    shared.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "shared", shared], check=True)
    subprocess.run(["mount", "--make-shared", shared], check=True)
    below = shared / "below"
    below.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "below", below], check=True)
    try:
        box = start()
        for name in ("one", "two", "one"):
            assert lay(box, image_of(images, name))
            assert box.ask("reset")["equal"]
        assert below.is_mount()
    finally:
        subprocess.run(["umount", "--recursive", shared], check=True)


@NEEDS_RUNC
def test_no_key_of_the_earlier_image_stays(container: Start, enter: Enter) -> None:
    """In a pod without a seccomp filter commands may use keyrings, and a process inherits its session's."""
    box = enter(container())
    runner = box.runner()
    assert runner.run(["python3", "-c", KEYS, "plant"]).stdout == b"True\n"
    assert runner.run(["python3", "-c", KEYS]).stdout == b"True\n"
    assert lay(box, {**HOST, "lower": ["/."]})  # an image with Python
    tell(runner)
    assert runner.run(["python3", "-c", KEYS]).stdout == b"False\n"


# Stands for gVisor, which keeps a socket that no process holds: there is one while the root has this file.
LEFT = """
import os
from sandlot_sidecar.executor import proof
proof.FreshState.left_sockets = lambda fresh, home: ["udp planted"] if os.path.exists("/planted") else []
"""


def test_a_socket_that_would_stay_ends_the_slot(make: Make, images: Path) -> None:
    box = make(first=LEFT)
    assert lay(box, image_of(images, "one"))
    assert box.run("touch /planted")["exit_code"] == 0
    assert not box.ask("check")["fresh"]
    with pytest.raises(Refused, match="udp planted") as error:
        box.ask("apply", image=image_of(images, "two"), unused=True)
    assert error.value.code == "setup"


def test_nothing_is_kept_where_the_kernel_refused_a_sysfs(make: Make, images: Path) -> None:
    refuse = "from sandlot_sidecar.executor import init_mounts; init_mounts.mount_sysfs = lambda prefix: []\n"
    box = make(first=refuse)
    for name in ("one", "two"):
        assert lay(box, image_of(images, name))
        assert [mount for mount in mounts_of(box) if mount[1].startswith("/sys")] == []
        assert box.run("ls /sys").stdout == b""
        assert box.ask("reset")["equal"]


def test_what_is_prepared_for_images_may_fail(make: Make, images: Path) -> None:
    box = make(first=REFUSES, root={"lower": ["/"], "disk": 64 << 20, "images": str(images)})
    assert box.run("echo usable > /usable; cat /usable").stdout == b"usable\n"
    assert not os.path.exists("/usable")
    assert box.ask("reset")["equal"]
    with pytest.raises(Refused):
        box.ask("apply", image=image_of(images, "one"), unused=True)
    assert box.run("echo usable").stdout == b"usable\n"
