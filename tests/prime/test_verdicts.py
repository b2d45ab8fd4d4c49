"""What each surface says of each end, with the unmodified oldest and newest clients of each way, and verifiers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.processes import executor, init, sidecars
from tests.prime.server import Server
from tests.prime.surfaces import SAME_COMMANDS, SLEEP, World, all_clients, boxes, differences, told_of
from tests.prime.verdicts import ROWS, Row
from tests.prime_rpc.support import Box
from tests.stack import Stack, private_stack
from tests.waiting import until

# `longest`: else each of several workers would start a world.
pytestmark = [
    pytest.mark.clients,
    pytest.mark.longest,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

COMMANDS = {**SAME_COMMANDS, "the disk's limit": "head -c 100000000 /dev/zero > /fill"}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with private_stack() as made:
        yield made


@pytest.fixture(scope="module")
def world(stack: Stack) -> Iterator[World]:
    server = Server(url=stack.url, api_key=stack.api_key, image="host", log=stack.log)
    with all_clients(server) as made:
        yield made


@pytest.fixture
def make_box(world: World) -> Iterator[Callable[..., Box]]:
    """One at a time, so that its sidecar is known."""
    with boxes(world.server, memory_gb=0.25, disk_size_gb=0.05, pids=64) as make:
        yield make


async def strike(cause: str, stack: Stack, box: Box) -> None:
    """What the row is about, now that the commands run."""
    if cause == "the sandbox's deadline":
        return
    (sidecar,) = await until(
        lambda: only_one(sidecars(stack)), what="the sidecar of the row before has ended"
    )
    match cause:
        case "the sandbox is deleted":
            await asyncio.to_thread(box.delete)
        case "the sandbox's init is killed":
            os.kill(init(sidecar), signal.SIGKILL)
        case "the sandbox's executor is killed":
            os.kill(executor(sidecar), signal.SIGKILL)
        case "the sidecar is killed":
            os.kill(sidecar, signal.SIGKILL)
        case "the sandbox is evicted":
            os.kill(sidecar, signal.SIGTERM)
        case _:
            raise AssertionError(f"nothing strikes for {cause!r}")


def only_one(found: list[int]) -> list[int]:
    return found if len(found) == 1 else []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.cause)
async def test_every_surface_says_of_every_end_what_the_table_says(
    stack: Stack, world: World, make_box: Callable[..., Box], row: Row
) -> None:
    command = COMMANDS.get(row.cause)
    box = make_box(**({"timeout_seconds": 20} if row.cause == "the sandbox's deadline" else {}))
    timeout = 1 if command == SLEEP else 60
    told = await told_of(
        world, box, row, command=command, timeout=timeout, strike=lambda: strike(row.cause, stack, box)
    )
    assert differences(row, told) == {}


def test_the_page_has_the_same_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "failures.md").read_text()
    table = page.partition("\n## What each interface reports\n")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[1:] == [row.cells() for row in ROWS]
