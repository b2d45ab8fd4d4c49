"""What root inside the sandbox may not do: its capabilities, the machine's devices and settings, and the known ways out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.executor.conftest import MEMORY
from tests.executor.driver import Driver

pytestmark = pytest.mark.root


def test_only_dockers_capabilities(any_box: Driver) -> None:
    ended = any_box.run("grep Cap /proc/self/status | cut -f2")
    inherited, permitted, effective, bounding, ambient = (int(line, 16) for line in ended.stdout.split())
    docker = 0xA80425FB
    assert inherited == ambient == 0
    for mask in (permitted, effective, bounding):
        assert mask & ~docker == 0
        assert mask & 1


def test_the_machines_disk_cannot_be_opened(box: Driver) -> None:
    disk = os.stat(os.path.realpath(root_device())).st_rdev if root_device() else os.makedev(8, 0)
    script = f"""
import os, stat
for directory in ('/', '/tmp', '/dev', '/dev/shm', '/run'):
    path = os.path.join(directory, 'disk')
    try:
        os.mknod(path, stat.S_IFBLK | 0o600, {disk})
    except OSError as error:
        print('mknod', error.errno)
        continue
    try:
        os.open(path, os.O_RDONLY)
        print('OPENED', path)
    except OSError as error:
        print('open', error.errno)
"""
    ended = box.run(["python3", "-c", script])
    assert b"OPENED" not in ended.stdout
    assert b"open 13" in ended.stdout


def root_device() -> str | None:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        source, point, *_ = line.split()
        if point == "/" and source.startswith("/dev/") and os.path.exists(source):
            return source
    return None


# Each of them is refused, so that one sandbox is as good for all as one for each.
REFUSED = (
    "mount -t tmpfs x /mnt",
    "umount /proc/sys",
    "mount -o remount,rw /proc/sys",
    "umount -l /dev",
    "pivot_root / /tmp",
    "hostname other",
    "echo 1 > /proc/sys/kernel/panic",
    "echo c > /proc/sysrq-trigger && test -s /proc/sysrq-trigger",
    "echo 0 > /proc/sys/vm/overcommit_memory",
    "mkdir /sys/fs/cgroup/x",
    "echo 1 > /sys/kernel/profiling",
    "ip link add dummy0 type dummy",
    "date -s 2001-01-01",
    "swapon /dev/null",
    "chroot /proc/1/root true",
    "nsenter -t 1 -m true",
    "nsenter -t 1 -p true",
    "unshare -m true",
    "unshare -n true",
    "insmod /dev/null",
    "dmesg",
    "test -s /proc/kcore",
    "test -s /proc/keys",
    "unshare -U true",
)
ATTACKS = (
    "umount /proc/keys || umount -l /proc/sys || mount -o remount,rw,bind /proc/sys",
    "umount /sys/fs/cgroup",
    "umount -l /proc && ls /proc | grep -q .",
    "umount -l /dev",
    "mount -t proc proc /mnt && cat /mnt/keys",
    "mount -t cgroup -o pids none /mnt",
    "mount -t cgroup2 none /mnt && ls /mnt/cgroup.procs",
    "mount -t overlay overlay -o lowerdir=/,upperdir=/tmp,workdir=/run /mnt",
)


def test_what_root_inside_may_not(any_box: Driver) -> None:
    done = [command for command in REFUSED if any_box.run(f"({command}) 2>&1")["exit_code"] == 0]
    assert done == []


def test_a_user_namespace_of_ones_own_does_not_help(any_box: Driver) -> None:
    within = "unshare -Urm --propagation unchanged sh -c '{}' 2>&1"
    done = [attack for attack in ATTACKS if any_box.run(within.format(attack))["exit_code"] == 0]
    assert done == []


def test_the_classic_chroot_escape_ends_in_the_sandbox(any_box: Driver) -> None:
    script = """
import os
os.makedirs('/jail', exist_ok=True)
fd = os.open('/', os.O_RDONLY)
os.chroot('/jail')
os.fchdir(fd)
for _ in range(64):
    os.chdir('..')
os.chroot('.')
print(open('/etc/hostname').read(), end='')
"""
    assert any_box.run(["python3", "-c", script]).stdout == b"box\n"


def test_limits_cannot_be_left(box: Driver) -> None:
    script = """
import os
found = [l for l in open('/proc/self/cgroup')]
assert all(l.strip().endswith(':/') for l in found), found
print(open('/proc/self/mountinfo').read().count('cgroup'))
"""
    assert box.run(["python3", "-c", script]).stdout == b"1\n"
    hog = "x = []\nwhile True: x.append(bytearray(4_000_000))"
    ended = box.run(f"setsid -w setsid -w python3 -c '{hog}'")
    assert ended["oom"]
    assert ended["peak_memory"] <= MEMORY
