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

import pytest

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
from sandlot_sidecar.executor import cgroups, target_groups
from sandlot_sidecar.executor.group import read_file
from sandlot_sidecar.executor.namespaces import Home
if sys.argv[2]:
    cgroups.CONTROLLERS = (sys.argv[2],)
Home()
sandbox = target_groups.make_v2(sys.argv[1])
group = sandbox.group.child("r1")
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    group.join()
    os.write(write, b"j")
    while True:
        os.read(os.pipe()[0], 1)
os.read(read, 1)
said = {"version": group.version, "members": group.members() == [pid], "controllers": read_file(group.track, "cgroup.controllers").split()}
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


@pytest.mark.parametrize("strict", [False, True])
def test_a_group_is_made_below_the_containers(strict: bool) -> None:
    controller = any_controller() if strict else ""
    if strict and not controller:
        pytest.skip("needs a controller in cgroup v2; all of this machine's are in version 1")
    top = ROOT / f"sandlot-test-{uuid.uuid4().hex[:12]}"
    with given(controller):
        top.mkdir()
        process = subprocess.Popen(["sleep", "600"])
        try:
            (top / "cgroup.procs").write_text(str(process.pid))
            done = subprocess.run(
                [sys.executable, "-c", ENTER, f"/{top.name}", controller], capture_output=True, text=True, timeout=60
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            said = json.loads(done.stdout)
            assert (said["version"], said["members"], said["removed"]) == (2, True, True)
            assert said["where"] == f"0::/{top.name}/sandlot/r1"
            assert said["controllers"] == ([controller] if controller else [])
            where = Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()[-1]
            assert where == f"0::/{top.name}{'/container' if strict else ''}"
        finally:
            process.kill()
            process.wait()
            for group in [*sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True), top]:
                group.rmdir()
