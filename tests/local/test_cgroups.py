"""Control groups: where they are, that they are made and removed with all in them, and what is read from them."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from sandlot_gateway.backends.local.cgroups import NoCgroups, find_cgroups, remove_groups
from sandlot_gateway.backends.local.cgroups.mounts import hierarchies

from tests.local.others import become_nobody, python_for_others

V1_CONTAINER = """\
710 700 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro,nosuid master:11 - cgroup cgroup rw,cpu,cpuacct
711 700 0:30 /docker/abc /sys/fs/cgroup/memory ro,nosuid master:12 - cgroup cgroup rw,memory
712 700 0:31 / /sys/fs/cgroup/with\\040space rw - cgroup cgroup rw,pids
713 700 0:32 /other /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer
714 700 0:33 / /proc rw - proc proc rw
"""
V1_MEMBER = "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc/inner\n3:pids:/x\n2:freezer:/docker/abc\n0::/\n"
SETTLE = """
import sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from sandlot_gateway.backends.local.cgroups.mounts import Hierarchy
from sandlot_gateway.backends.local.cgroups.v2 import settle
mount = Path(sys.argv[1])
print(settle(Hierarchy(controllers=frozenset(), mount=mount, own=mount, v2=True)) is not None)
"""
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def test_a_v1_container_s_hierarchies() -> None:
    found = {item.mount.name: item for item in hierarchies(mountinfo=V1_CONTAINER, membership=V1_MEMBER)}
    assert found.keys() == {"cpu,cpuacct", "memory", "with space"}
    assert found["cpu,cpuacct"].controllers == {"cpu", "cpuacct"}
    assert found["cpu,cpuacct"].own == Path("/sys/fs/cgroup/cpu,cpuacct")
    assert found["memory"].own == Path("/sys/fs/cgroup/memory/inner")
    assert found["with space"].own == Path("/sys/fs/cgroup/with space/x")
    assert not any(item.v2 for item in found.values())


def test_a_v2_hierarchy() -> None:
    (found,) = hierarchies(mountinfo=V2, membership="0::/user.slice/user-1000.slice/app.scope\n")
    assert found.v2
    assert found.own == Path("/sys/fs/cgroup/user.slice/user-1000.slice/app.scope")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real cgroups")
def test_groups_are_made_counted_and_removed_with_what_runs_in_them() -> None:
    cgroups = find_cgroups()
    if isinstance(cgroups, NoCgroups):
        pytest.skip("no cgroup of this machine can be written")
    instance_id = f"i-{secrets.token_hex(8)}"
    parent = cgroups.create(instance_id)
    assert parent is not None
    assert parent.endswith(f"sandlot/{instance_id}")
    paths = cgroups.paths(instance_id)
    children = [path / "op" / "deeper" for path in paths]
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        assert all(path.is_dir() for path in paths)
        assert cgroups.create(instance_id) == parent
        for child in children:
            child.mkdir(parents=True)
            (child / "cgroup.procs").write_text(str(sleeper.pid))
        usage = cgroups.usage(instance_id)
        assert usage.pids == 1
        assert usage.memory is not None
        assert usage.cpu is not None
        assert remove_groups(paths) == []
        assert sleeper.wait(timeout=60) == -9
        assert not any(path.exists() for path in paths)
        assert cgroups.usage(instance_id).pids is None
        assert remove_groups(paths) == []
    finally:
        sleeper.kill()
        sleeper.wait()
        remove_groups(paths)
        cgroups.close()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: another user's group")
def test_a_v2_group_of_another_user_is_not_taken() -> None:
    """Root's gateway has made it, and an ordinary user starts one, too."""
    directory = Path(tempfile.mkdtemp(prefix="sandlot-"))
    try:
        directory.chmod(0o755)
        mount = directory / "hierarchy"
        for group in (mount, mount / "sandlot"):
            group.mkdir()
            (group / "cgroup.procs").write_text("")
            for file in ("cgroup.controllers", "cgroup.subtree_control"):
                (group / file).write_text("cpu memory pids\n")
        assert [
            is_taken(directory, mount, become=[]),
            is_taken(directory, mount, become=become_nobody()),
        ] == [True, False]
    finally:
        shutil.rmtree(directory)


def is_taken(directory: Path, mount: Path, *, become: list[str]) -> bool:
    """Whether a user would make groups in a hierarchy of version 2."""
    python, paths = python_for_others(directory, become=become)
    done = subprocess.run(
        [*python, "-c", SETTLE, str(mount), *paths], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout == "True\n"


def test_a_machine_without_says_so() -> None:
    none = NoCgroups(["limits: no writable cgroup"])
    assert none.create("i-0123456789abcdef") is None
    assert none.paths("i-0123456789abcdef") == []
    assert none.usage("i-0123456789abcdef").memory is None
    none.close()
