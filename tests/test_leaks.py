"""What the check for leaks takes for a test's own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from secrets import token_hex

import pytest

from tests.leaks import GVISOR_PREFIX, no_leaks
from tests.netlink import make_network, remove_network
from tests.plugins.worker import CGROUPS, hierarchies

GROUPS = [CGROUPS, *hierarchies()][-1]  # not those of memory, of which the kernel removes one slowly

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts"),
]


@contextmanager
def mounted(prefix: str) -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix=prefix, dir="/tmp") as directory:
        point = Path(directory)
        subprocess.run(["mount", "--bind", point, point], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", point], check=True)


def leave_mount(prefix: str, *, grace: float) -> None:
    """Have a mount stay until after the check."""
    mount = mounted(prefix)
    try:
        with no_leaks(grace=grace, marker="no such process"):
            mount.__enter__()
    finally:
        mount.__exit__(None, None, None)


def test_a_mount_that_stays_is_a_leak() -> None:
    with pytest.raises(AssertionError, match="mounts: /tmp/sandlot-test-"):
        leave_mount("sandlot-test-", grace=0.1)


def test_a_container_of_another_worker_is_none() -> None:
    leave_mount(GVISOR_PREFIX, grace=5.0)


@pytest.mark.parametrize("own", [True, False])
def test_a_network_is_a_leak_of_the_process_that_made_it(own: bool) -> None:
    path = Path(f"/run/netns/sandlot-leak-{os.getpid() if own else os.getppid()}")
    leaks = pytest.raises(AssertionError, match="mounts: /run/netns/sandlot-leak-")
    try:
        with leaks if own else nullcontext(), no_leaks(grace=0.1 if own else 5.0, marker="no such process"):
            make_network(path).__exit__(None, None, None)
    finally:
        remove_network(path)


@pytest.mark.skipif(not os.access(GROUPS, os.W_OK), reason="needs control groups that it may change")
@pytest.mark.parametrize("of_kubelet", [True, False])
def test_a_control_group_is_a_leak_unless_a_kubelet_made_it(of_kubelet: bool) -> None:
    top = GROUPS / f"sandlot-leak-{os.getpid()}"
    path = top / ("kubepods" if of_kubelet else "pods") / "pod" / "sandlot" / f"i-{token_hex(8)}"
    leaks = pytest.raises(AssertionError, match=r"cgroups: .*/sandlot/i-")
    try:
        with nullcontext() if of_kubelet else leaks, no_leaks(grace=0.1, marker="no such process"):
            path.mkdir(parents=True)
    finally:
        for group in (path, *path.parents[:4]):
            group.rmdir()


def test_a_process_that_deletes_sandboxes_is_a_leak_while_it_lives() -> None:
    mine = f"of-{os.getpid()}"  # other workers' tests start some, too
    command = [sys.executable, "-m", "sandlot.integrations._orphans", mine]
    with (
        subprocess.Popen(command, stdin=subprocess.DEVNULL) as ends,
        no_leaks(marker=mine),
    ):
        ends.wait()
    started: list[subprocess.Popen[bytes]] = []
    try:
        with (
            pytest.raises(AssertionError, match=r"sandlot_processes: .*_orphans"),
            no_leaks(marker=mine, grace=0.1),
        ):
            started.append(subprocess.Popen(command, stdin=subprocess.PIPE))
    finally:
        for process in started:
            process.communicate()
