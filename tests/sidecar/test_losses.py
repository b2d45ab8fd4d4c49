"""A server, an executor or an init that is killed: what was written is kept, and each loss is told as one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.sidecar.processes import command_line, descendants, gone, name_of
from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = pytest.mark.root


LAST_WORDS = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
os.write(1, b"a" * 100_000)  # from here on the pipe has room for a MiB
signal.sigwait({signal.SIGUSR1})
os.write(1, b"b" * 900_000)
signal.pause()
"""


async def test_the_last_words_of_a_lost_command_are_kept(box: Sidecar) -> None:
    """They were in the pipe when its init was lost; the server, which was busy, had no time to read them."""
    await box.call("PUT", "/v1/files?path=/words.py", content=LAST_WORDS.encode())
    await box.op(["python3", "/words.py"], id="speaks", detach=True)
    await until(lambda: wrote(box, 100_000))
    (speaker,) = [pid for pid in descendants(box.pid) if b"/words.py" in command_line(pid)]
    (init,) = inits(box)
    os.kill(box.pid, signal.SIGSTOP)
    try:
        os.kill(speaker, signal.SIGUSR1)
        await until(lambda: written(speaker, 1_000_000))
        os.kill(init, signal.SIGKILL)
        await gone({speaker})
        await until(lambda: replaced(box, init))
    finally:
        os.kill(box.pid, signal.SIGCONT)
    ended = await box.ended("speaks")
    assert (ended["verdict"], ended["stdout_bytes"]) == ("sandbox_broken", 1_000_000)


async def wrote(box: Sidecar, count: int) -> bool:
    return (await box.call("GET", "/v1/ops/speaks")).json()["stdout_bytes"] == count


async def written(pid: int, count: int) -> bool:
    return int(counters(pid)["wchar"]) >= count


def counters(pid: int) -> dict[str, str]:
    return dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())


def inits(box: Sidecar) -> set[int]:
    return {pid for pid in descendants(box.pid) if name_of(pid).endswith("init")}


async def replaced(box: Sidecar, init: int) -> bool:
    return bool(inits(box) - {init})
