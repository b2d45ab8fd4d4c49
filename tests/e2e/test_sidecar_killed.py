"""A sidecar dies: the caller gets a typed loss with the verdict, and a pool fills up again."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from sandlot import Client, Sandbox, SandboxLost

from tests.stack import Stack


def sidecar_pids(stack: Stack) -> list[int]:
    """The sidecar servers of this stack: the eldest process with this state directory on its command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            elder = Path(f"/proc/{parent}/cmdline").read_bytes() if parent else b""
        except OSError:
            continue
        if b"sandlot_sidecar" in command and str(stack.state_dir).encode() in command and elder != command:
            found.append(int(entry.name))
    return found


def test_a_killed_sidecar_is_a_typed_loss(stack: Stack, client: Client) -> None:
    box = Sandbox.create(client=client)
    assert box.exec("echo here").stdout == "here\n"
    for pid in sidecar_pids(stack):
        os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(SandboxLost) as lost:
        box.exec("echo there", timeout=10)
    assert lost.value.verdict in ("sidecar_lost", "sandbox_lost")
    assert lost.value.infrastructure
    assert time.monotonic() - began < 10
    info = box.refresh()
    assert info.ended
    assert info.verdict in ("sidecar_lost", "sandbox_lost")
