"""Sandboxes for the executor's tests, each with a check that nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.executor.container import HOLDER_DIR, Container
from tests.executor.driver import Driver
from tests.executor.plants import without
from tests.executor.processes import children_of, processes_below
from tests.leaks import mount_table
from tests.waiting import wait_until_empty

# This process's own: other tests run beside it.
CGROUP_TOP = f"sandlot-test/{os.getpid()}"
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
IMPORT = "import sandlot_sidecar.executor.main"
MEMORY = 256 * 1024 * 1024

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces, mounts and cgroups")


def user_namespaces_allowed() -> bool:
    prefix = NOBODY if os.geteuid() == 0 else []
    if prefix and shutil.which("setpriv") is None:
        return False
    namespaces = subprocess.run([*prefix, "unshare", "-Ur", "true"], capture_output=True, check=False)
    # An interpreter below somebody's closed home directory is out of an ordinary user's reach.
    interpreter = subprocess.run([*prefix, sys.executable, "-c", IMPORT], capture_output=True, check=False)
    return namespaces.returncode == interpreter.returncode == 0


def cgroup_tops() -> list[Path]:
    """In each hierarchy, where a test has made it."""
    return [*Path("/sys/fs/cgroup").glob(CGROUP_TOP), *Path("/sys/fs/cgroup").glob(f"*/{CGROUP_TOP}")]


def cgroups_left() -> list[str]:
    return [str(path) for top in cgroup_tops() for path in top.glob("*") if path.is_dir()]


@pytest.fixture(scope="session", autouse=True)
def _cgroup_tops_removed() -> Iterator[None]:
    yield
    for top in cgroup_tops():
        top.rmdir()


class Machine:
    """What must be the same before and after a test."""

    def __init__(self) -> None:
        self.mounts = set(mount_table())
        self.fds = len(os.listdir("/proc/self/fd"))
        self.cgroups = cgroups_left()
        self.children = set(children_of(os.getpid()))

    def differences(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if mounts := set(mount_table()) - self.mounts:
            found["mounts"] = mounts
        # Fewer is no leak: the garbage collector closes what an earlier test forgot.
        if (fds := len(os.listdir("/proc/self/fd"))) > self.fds:
            found["fds"] = (self.fds, fds)
        if (cgroups := cgroups_left()) != self.cgroups:
            found["cgroups"] = cgroups
        # What was there before, a server of the whole session say, may have new ones of its own.
        if children := set(children_of(os.getpid())) - self.children:
            found["processes"] = [*children, *(pid for child in children for pid in processes_below(child))]
        return found


@pytest.fixture(autouse=True)
def machine() -> Iterator[Machine]:
    """Nothing is left on the machine when a test is over."""
    before = Machine()
    yield before
    wait_until_empty(before.differences, seconds=30)


Make = Callable[..., Driver]


@pytest.fixture
def make(machine: Machine) -> Iterator[Make]:
    """Make sandboxes; arguments override those of `setup`, `first` is code that the executor's process runs before."""
    drivers: list[Driver] = []

    def start(*, rootless: bool = False, first: str = "", **arguments: Any) -> Driver:
        name = uuid.uuid4().hex[:12]
        prefix = NOBODY if rootless and os.geteuid() == 0 else []
        driver = Driver(prefix=prefix, first=first)
        drivers.append(driver)
        driver.setup = {
            "root": {"lower": ["/"], "disk": 64 * 1024 * 1024},
            "hostname": "box",
            "limits": {"memory": MEMORY, "pids": 100},
            "cgroup_parent": None if rootless else f"{CGROUP_TOP}/{name}",
            **arguments,
        }
        driver.ready = driver.ask("setup", **driver.setup)
        return driver

    yield start
    for driver in drivers:
        with contextlib.suppress(OSError):
            driver.close()


@pytest.fixture
def box(make: Make) -> Driver:
    """A sandbox of root's with cgroups."""
    if os.geteuid() != 0:
        pytest.skip("needs root: real namespaces, mounts and cgroups")
    return make()


@pytest.fixture(params=["root", "rootless"])
def any_box(request: pytest.FixtureRequest, make: Make) -> Driver:
    """A sandbox of root's, and one of an ordinary user's."""
    if request.param == "root":
        if os.geteuid() != 0:
            pytest.skip("needs root: real namespaces, mounts and cgroups")
        return make()
    if not user_namespaces_allowed():
        pytest.skip("user namespaces, or this interpreter, are not allowed to an ordinary user here")
    return make(rootless=True, limits={"pids": 100})


Start = Callable[..., Container]
Enter = Callable[..., Driver]


@pytest.fixture
def container(machine: Machine) -> Iterator[Start]:
    """Starts containers and takes them away."""
    made: list[Container] = []

    def start(**options: Any) -> Container:
        box = Container(**options)
        made.append(box)
        return box.start()

    yield start
    for box in made:
        box.close()


@pytest.fixture
def enter(make: Make) -> Enter:
    """Makes the sandbox in a container."""

    def start(box: Container, **arguments: Any) -> Driver:
        root = {"upper": str(box.directory / "store"), "mask": [HOLDER_DIR], **arguments.pop("root", {})}
        given = {"target": box.id, "root": root, "limits": {}, "cgroup_parent": None, **arguments}
        return make(**given)

    return start


Box = Callable[..., Driver]


@pytest.fixture(params=["local", "pod"])
def start(request: pytest.FixtureRequest, make: Make) -> Iterator[Box]:
    """Makes a sandbox on this machine, and one in a container of runc's; `skip` is the step that its resets lack."""
    made: list[Container] = []

    def begin(skip: str | None = None) -> Driver:
        first = "" if skip is None else without(skip)
        if request.param == "local":
            # Its groups could not be removed while what was not killed is dying.
            return make(first=first, **({"cgroup_parent": None} if skip == "processes" else {}))
        if shutil.which("runc") is None:
            pytest.skip("needs the program runc (package runc)")
        made.append(Container())
        container = made[-1].start()
        root = {"upper": str(container.directory / "store"), "mask": [HOLDER_DIR]}
        return make(first=first, target=container.id, root=root, limits={}, cgroup_parent=None)

    yield begin
    for each in made:
        each.close()
