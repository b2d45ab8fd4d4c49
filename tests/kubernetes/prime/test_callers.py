"""50 commands at once in each of 20 sandboxes under gVisor, through one gateway: all are answered, and run once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sandlot import AsyncClient, AsyncSandbox, Client, Sandbox

from tests.kubernetes.prime.conftest import server_of
from tests.kubernetes.releases import SMALL, release_of_its_own
from tests.kubernetes.stack import IMAGE, Stack
from tests.prime.conftest import run_client

SANDBOXES = 20
CALLERS = 50
SCRIPT = Path(__file__).parents[2] / "prime" / "callers_script.py"

pytestmark = [pytest.mark.slow, pytest.mark.whole_cluster]


@pytest.fixture(scope="module")
def one_gateway() -> Iterator[Stack]:
    with release_of_its_own("callers", runtime="gvisor") as stack:
        stack.install(*SMALL, "--set-json", "sandboxes.pods.cpuShare=0.04")
        yield stack


@pytest.fixture(scope="module")
def boxes(one_gateway: Stack) -> Iterator[list[Sandbox]]:
    """The same for all clients, since twenty pods under gVisor take as long to start as all of their commands."""
    with (
        Client(url=one_gateway.url, api_key=one_gateway.api_key) as client,
        ThreadPoolExecutor(SANDBOXES) as threads,
    ):

        def make(_: int) -> Sandbox:
            return Sandbox.create(IMAGE, cpu=1, memory=256 << 20, wait=300, client=client)

        made = list(threads.map(make, range(SANDBOXES)))
        try:
            yield made
        finally:
            list(threads.map(Sandbox.delete, made))


def assert_ran_once(boxes: list[Sandbox]) -> None:
    """Each number is in each sandbox's file, which the next client begins anew."""
    for box in boxes:
        assert sorted(int(line) for line in box.files.read("/tmp/ran").split()) == list(range(CALLERS))
        box.files.remove("/tmp/ran")


@pytest.mark.parametrize("version", ["0.2.36", "0.5.1"])
def test_no_call_of_prime_s_clients_is_lost(one_gateway: Stack, boxes: list[Sandbox], version: str) -> None:
    ids = [box.id for box in boxes]
    server = server_of(one_gateway, tcp=False)
    wrong = run_client(server, SCRIPT, str(CALLERS), *ids, package="prime-sandboxes", version=version)
    assert wrong == []
    assert_ran_once(boxes)


async def test_no_call_of_our_client_is_lost(one_gateway: Stack, boxes: list[Sandbox]) -> None:
    async def one(box: AsyncSandbox, number: int) -> str:
        told = await box.exec(f"echo {number} >> /tmp/ran; echo {number}", timeout=120)
        return told.stdout

    async with AsyncClient(url=one_gateway.url, api_key=one_gateway.api_key) as client:
        ours = await asyncio.gather(*(AsyncSandbox.connect(box.id, client=client) for box in boxes))
        told = await asyncio.gather(*(one(box, number) for box in ours for number in range(CALLERS)))
    assert told == [f"{number}\n" for _ in boxes for number in range(CALLERS)]
    await asyncio.to_thread(assert_ran_once, boxes)
