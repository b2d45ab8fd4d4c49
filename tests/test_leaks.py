"""What the check for leaks takes for a test's own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.leaks import GVISOR_PREFIX, no_leaks

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts"),
]


@contextmanager
def mounted(point: Path) -> Iterator[None]:
    point.mkdir(parents=True)
    subprocess.run(["mount", "--bind", point, point], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", point], check=True)
        point.rmdir()


def leave_mount(point: Path, *, grace: float) -> None:
    """Have a mount stay until after the check."""
    mount = mounted(point)
    try:
        with no_leaks(grace=grace, marker="no such process"):
            mount.__enter__()
    finally:
        mount.__exit__(None, None, None)


def test_a_mount_that_stays_is_a_leak() -> None:
    with pytest.raises(AssertionError, match="mounts: /tmp/sandlot-test-"):
        leave_mount(Path(f"/tmp/sandlot-test-{os.getpid()}"), grace=0.1)


def test_a_container_of_another_worker_is_none() -> None:
    leave_mount(Path(f"/tmp/{GVISOR_PREFIX}{os.getpid()}"), grace=5.0)


def test_a_cable_of_this_process_is_a_leak_and_of_another_none() -> None:
    with pytest.raises(AssertionError, match="mounts: /run/netns/sandlot-t-"):
        leave_mount(Path(f"/run/netns/sandlot-t-{os.getpid()}"), grace=0.1)
    leave_mount(Path(f"/run/netns/sandlot-t-{os.getppid()}"), grace=5.0)
