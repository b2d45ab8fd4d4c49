"""Processes of this machine, as /proc shows them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from tests.waiting import SECONDS


def descendants(pid: int) -> set[int]:
    found, frontier = {pid}, [pid]
    while frontier:
        current = frontier.pop()
        try:
            children = Path(f"/proc/{current}/task/{current}/children").read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            found.add(child)
            frontier.append(child)
    return found


async def gone(pids: set[int], *, timeout: float = SECONDS) -> None:
    """Wait until none of the processes is there (their pidfds say so)."""
    loop = asyncio.get_running_loop()
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ended = loop.create_future()
        loop.add_reader(fd, lambda ended=ended: ended.done() or ended.set_result(None))
        try:
            async with asyncio.timeout(timeout):
                await ended
        except TimeoutError as error:
            raise AssertionError(f"process {pid} is still there") from error
        finally:
            loop.remove_reader(fd)
            os.close(fd)


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def links_of(pid: int) -> list[str]:
    """What the descriptors of a process lead to, but for those that it closes meanwhile."""
    links: list[str] = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return links


def resident(pid: int) -> int:
    """Resident bytes of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def memory_of(pid: int) -> bytes:
    """All writable memory of a process."""
    content = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps:
            if " rw" in line and "[v" not in line:
                start, end = (int(part, 16) for part in line.split()[0].split("-"))
                memory.seek(start)
                with contextlib.suppress(OSError):  # given back since it was listed
                    content.append(memory.read(end - start))
    return b"".join(content)
