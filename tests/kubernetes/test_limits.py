"""What a sandbox may use of its node: who takes more gets a verdict within seconds, and its neighbours stay calm."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sandlot import Client, Sandbox, SandboxLost

from tests.kubernetes.boxes import pod_of, until
from tests.kubernetes.stack import IMAGE, Stack

FILL = "i=0; while true; do i=$((i + 1)); head -c 4194304 /dev/zero > /var/tmp/$i || exit 1; sleep 0.02; done"
BOMB = "bomb() { bomb | bomb & }; bomb; sleep 60"
HOLD = (
    "import time\nx = []\nfor _ in range(200): x.append(b'x' * (4 << 20)); time.sleep(0.01)\ntime.sleep(900)"
)


@pytest.fixture
def box(client: Client) -> Iterator[Sandbox]:
    """Of no pool: a small disk is full sooner."""
    with Sandbox.create(IMAGE, client=client, cpu=1, memory=512 << 20, disk=256 << 20, wait=180) as made:
        yield made


def test_a_full_disk_is_a_verdict_and_the_sandbox_lives(stack: Stack, box: Sandbox) -> None:
    before = pod_of(stack, box)["metadata"]["uid"]
    result = box.exec(FILL, timeout=120)
    assert result.verdict == "disk_full", result
    assert box.exec("rm /var/tmp/*; sleep 2; echo room", timeout=60).stdout == "room\n"
    assert pod_of(stack, box)["metadata"]["uid"] == before


@contextmanager
def told_within(seconds: float) -> Iterator[None]:
    """Of the block, however it ends; what the test does to see what is left takes its own time."""
    began = time.monotonic()
    try:
        yield
    finally:
        assert time.monotonic() - began < seconds


def test_a_bomb_of_processes_ends_in_a_verdict(stack: Stack, box: Sandbox) -> None:
    """In gVisor it may reach the pod's limit of memory first, and all of the pod ends."""
    before = pod_of(stack, box)["metadata"]["uid"]
    try:
        with told_within(120):
            # Where the kernel holds it to its share, its own limit of time may be how it ends.
            result = box.exec(BOMB, timeout=45 if stack.runtime else 20)
        assert result.verdict in ({"pids_limit", "oom"} if stack.runtime else {"pids_limit", "timeout"}), (
            result
        )
        until(lambda: int(box.exec("ls -d /proc/[0-9]* | wc -l", timeout=60).stdout or 99) < 10)
    except SandboxLost as lost:
        # Before its verdict or after it, while its processes are being killed.
        assert stack.runtime
        assert lost.verdict in ("oom", "sandbox_lost"), lost
    else:
        assert pod_of(stack, box)["metadata"]["uid"] == before


def test_memory_left_behind_is_bounded(stack: Stack, box: Sandbox) -> None:
    before = pod_of(stack, box)["metadata"]["uid"]
    box.files.write("/hold.py", HOLD.encode())
    box.exec("setsid python3 /hold.py > /dev/null 2>&1 & echo left", timeout=30)
    until(lambda: "hold.py" not in box.exec("cat /proc/[0-9]*/cmdline", timeout=60).stdout)
    assert box.exec("echo usable", timeout=30).stdout == "usable\n"
    assert pod_of(stack, box)["metadata"]["uid"] == before
