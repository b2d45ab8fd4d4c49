"""The group of a pod's container under cgroup v2, where a group with processes gives no controllers to its children."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.executor.container import remove_group

ROOT = next((Path(p) for p in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup") if Path(p, "cgroup.controllers").exists()),
            Path("/nowhere"))  # fmt: skip

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real cgroups"),
    pytest.mark.skipif(not ROOT.exists(), reason="needs a cgroup v2 hierarchy"),
]

# A machine with both versions has its usual controllers in v1; any other one is as strict about processes.
ENTER = """
import json, os, sys
from sandlot_sidecar.executor import cgroups, syscalls, target_groups
from sandlot_sidecar.executor.group_files import read_file
from sandlot_sidecar.executor.namespaces import Home
path, container, hidden, controller = sys.argv[1:]
if controller:
    cgroups.CONTROLLERS = (controller,)
home = Home()
if hidden:
    syscalls.umount(hidden)
sandbox = target_groups.make_v2(target_groups.open_v2(home, int(container), path))
group = sandbox.group.child("r1")
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    group.join()
    os.write(write, b"j")
    while True:
        os.read(os.pipe()[0], 1)
os.close(write)
joined = os.read(read, 1) == b"j"
said = {"version": group.version, "members": joined and group.members() == [pid], "controllers": read_file(group.track, "cgroup.controllers").split()}
said["where"] = open(f"/proc/{pid}/cgroup").read().splitlines()[-1]
os.kill(pid, 9)
os.waitpid(pid, 0)
said["removed"] = group.remove(sandbox.group)
sandbox.remove()
print(json.dumps(said))
"""


@contextlib.contextmanager
def given(controller: str) -> Iterator[None]:
    """A controller for the groups below the root, for a moment."""
    control = ROOT / "cgroup.subtree_control"
    if not controller or controller in control.read_text().split():
        yield
        return
    control.write_text(f"+{controller}")
    try:
        yield
    finally:
        control.write_text(f"-{controller}")


def any_controller() -> str:
    return next(iter((ROOT / "cgroup.controllers").read_text().split()), "")


def options() -> str:
    """Of the hierarchy, as every mount of it shows them."""
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup2 " in line]
    return mounts[0].rpartition(" ")[2]


@contextlib.contextmanager
def container() -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A group with a process."""
    top = ROOT / f"sandlot-test-{uuid.uuid4().hex[:12]}"
    top.mkdir()
    process = subprocess.Popen(["sleep", "600"])
    try:
        (top / "cgroup.procs").write_text(str(process.pid))
        yield top, process
    finally:
        process.kill()
        process.wait()
        for group in [*sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True), top]:
            remove_group(group)


def enter(top: Path, process: subprocess.Popen[bytes], *, hidden: str = "", controller: str = "") -> Any:
    """What a process in a new group of the sandbox's says; `hidden` is a mount that is not there for it."""
    argv = [sys.executable, "-c", ENTER, f"/{top.name}", str(process.pid), hidden, controller]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("strict", [False, True])
def test_a_group_is_made_below_the_containers(strict: bool) -> None:
    controller = any_controller() if strict else ""
    if strict and not controller:
        pytest.skip("needs a controller in cgroup v2; all of this machine's are in version 1")
    with given(controller), container() as (top, process):
        wanted = {controller} if controller else {"memory", "pids", "cpu"}
        wanted.intersection_update((top / "cgroup.controllers").read_text().split())
        said = enter(top, process, controller=controller)
        assert (said["version"], said["members"], said["removed"]) == (2, True, True)
        assert said["where"] == f"0::/{top.name}/sandlot/r1"
        assert set(said["controllers"]) == wanted
        where = Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()[-1]
        assert where == f"0::/{top.name}{'/container' if wanted else ''}"


@pytest.mark.parametrize("hidden", [False, True])
def test_the_hierarchy_keeps_its_options(hidden: bool) -> None:
    """A new mount would set them for the whole machine; without one to look at, those that the container sees."""
    before = options()
    if before == "rw":
        pytest.skip("needs cgroup v2 with an option, nsdelegate say")
    with container() as (top, process):
        assert enter(top, process, hidden=str(ROOT) if hidden else "")["members"]
        assert options() == before
