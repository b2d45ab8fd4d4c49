"""All processes of a stack are gone at once and the machine has booted anew: the next start finds remains only."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from sandlot import Client, Sandbox, SandboxLost

from tests.e2e import processes
from tests.stack import Stack
from tests.waiting import wait_until_empty

OTHER_BOOT = "00000000-0000-4000-8000-000000000000"


def power_cut(stack: Stack) -> list[Path]:
    """Kills everything and makes the state look as another boot's; the instances' directories."""
    stack.kill()
    for pid in processes.sidecars(stack):
        os.kill(pid, signal.SIGKILL)
    wait_until_empty(lambda: processes.sidecars(stack))
    directories = sorted((stack.state_dir / "instances").iterdir())
    for directory in directories:
        path = directory / "instance.json"
        record = json.loads(path.read_text())
        # The number is another process's now: whoever believed it would kill a stranger.
        record["process"] |= {"boot": OTHER_BOOT, "pid": os.getpid()}
        path.write_text(json.dumps(record))
    return directories


def test_remains_are_cleared_and_told_of(stack: Stack, client: Client) -> None:
    box = Sandbox.create(client=client, name="lost")
    box.exec("echo x > /tmp/file; sleep 600 & echo started")
    directories = power_cut(stack)
    assert len(directories) == 1
    stack.start()
    info = box.refresh()
    assert (info.ended, info.verdict, info.name) == (True, "sidecar_lost", "lost")
    with pytest.raises(SandboxLost) as lost:
        box.exec("echo there", timeout=10)
    assert lost.value.verdict == "sidecar_lost"
    assert list((stack.state_dir / "instances").iterdir()) == []
    groups = Path("/sys/fs/cgroup").glob(f"*/sandlot/{directories[0].name}")
    assert list(groups) == []
    with Sandbox.create(client=client) as fresh:
        assert fresh.exec("cat /tmp/file; echo here").stdout == "here\n"


def test_an_instance_without_a_readable_record_is_cleared_too(stack: Stack, client: Client) -> None:
    Sandbox.create(client=client)
    (directory,) = power_cut(stack)
    (directory / "instance.json").write_bytes(b"\0" * 100)  # what a journal may leave of a file
    (stack.state_dir / "pools.json").write_bytes(b"")
    stack.start()
    assert list((stack.state_dir / "instances").iterdir()) == []
    with Sandbox.create(client=client) as fresh:
        assert fresh.exec("echo here").stdout == "here\n"
