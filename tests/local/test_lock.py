"""The state directory's lock: one owner, named in the error, and free once the owner is dead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sandlot_gateway.backends.local.lock import InUse, StateLock

HOLDER = """
import sys
from pathlib import Path
from sandlot_gateway.backends.local.lock import StateLock
StateLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_owner_is_told_the_first_one_s_pid_and_gets_it_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        lock = StateLock(path)
        with pytest.raises(InUse, match=f"in use by the gateway with pid {holder.pid}") as caught:
            lock.acquire()
        assert caught.value.pid == holder.pid
        assert not lock.held
        holder.kill()
        holder.wait()
    lock.acquire()
    assert path.read_text().strip().isdigit()
    lock.release()
    assert path.read_text() == ""


def test_release_lets_another_in(tmp_path: Path) -> None:
    first, second = StateLock(tmp_path / "lock"), StateLock(tmp_path / "lock")
    first.acquire()
    first.acquire()
    first.release()
    second.acquire()
    second.release()
