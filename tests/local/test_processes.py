"""Process handles: a key means one process only, and a search by mark finds a whole family and kills it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_gateway.backends.local import processes

FAMILY = """
import os, sys
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            break
        os._exit(0)
    os.wait()
os.write(1, b"up\\n")
import signal
signal.pause()
"""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_a_key_names_a_running_process(sleeper: subprocess.Popen[bytes]) -> None:
    key = processes.key_of(sleeper.pid)
    assert key is not None
    assert processes.ProcessKey.from_json(key.to_json()) == key
    fd = processes.open_pidfd(key)
    assert fd is not None
    try:
        assert not processes.wait_all([fd], timeout=0)
        processes.pidfd_kill(fd)
        assert processes.wait_all([fd], timeout=60)
        # A zombie now: its pid is taken still, but it is no living process.
        assert processes.key_of(sleeper.pid) is None
        assert processes.open_pidfd(key) is None
        sleeper.wait()
        processes.pidfd_kill(fd)
    finally:
        os.close(fd)


@pytest.mark.parametrize("change", [{"started": 1}, {"boot": "another"}, {"pid": 2**22 + 1}])
def test_a_reused_pid_is_another_process(sleeper: subprocess.Popen[bytes], change: dict[str, object]) -> None:
    key = processes.key_of(sleeper.pid)
    assert key is not None
    assert processes.open_pidfd(dataclasses.replace(key, **change)) is None


@pytest.mark.parametrize("value", [None, 7, {}, {"pid": "1", "started": 2, "boot": ""}])
def test_a_damaged_key_is_none(value: object) -> None:
    assert processes.ProcessKey.from_json(value) is None


def test_kill_marked_finds_forked_and_session_changed_processes(tmp_path: Path) -> None:
    mark = str(tmp_path / "config.json")
    family = subprocess.Popen([sys.executable, "-c", FAMILY, "--config", mark], stdout=subprocess.PIPE)
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        assert family.stdout is not None
        for _ in range(3):
            assert family.stdout.readline() == b"up\n"
        assert len(processes.marked(mark)) == 3
        assert len(processes.kill_marked(mark)) == 3
        assert family.wait(timeout=60) == -9
        assert processes.marked(mark) == {}
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
        family.stdout.close() if family.stdout else None
