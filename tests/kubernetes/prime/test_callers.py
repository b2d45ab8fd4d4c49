"""50 commands at once in each of 20 sandboxes under gVisor, through one gateway: all are answered, and run once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from sandlot import AsyncClient, AsyncSandbox

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


@pytest_asyncio.fixture
async def boxes(one_gateway: Stack) -> AsyncIterator[list[AsyncSandbox]]:
    async with AsyncClient(url=one_gateway.url, api_key=one_gateway.api_key) as client:
        make = [
            AsyncSandbox.create(IMAGE, cpu=1, memory=256 << 20, wait=300, client=client)
            for _ in range(SANDBOXES)
        ]
        made = await asyncio.gather(*make)
        try:
            yield made
        finally:
            await asyncio.gather(*(box.delete() for box in made))


async def _ran(box: AsyncSandbox) -> list[int]:
    return sorted(int(line) for line in (await box.files.read("/tmp/ran")).split())


@pytest.mark.parametrize("version", ["0.2.36", "0.5.1"])
async def test_no_call_of_prime_s_clients_is_lost(
    one_gateway: Stack, boxes: list[AsyncSandbox], version: str
) -> None:
    ids = [box.id for box in boxes]
    server = server_of(one_gateway, tcp=False)
    wrong = await asyncio.to_thread(
        run_client, server, SCRIPT, str(CALLERS), *ids, package="prime-sandboxes", version=version
    )
    assert wrong == []
    assert await asyncio.gather(*map(_ran, boxes)) == [list(range(CALLERS))] * SANDBOXES


async def test_no_call_of_our_client_is_lost(boxes: list[AsyncSandbox]) -> None:
    async def one(box: AsyncSandbox, number: int) -> str:
        told = await box.exec(f"echo {number} >> /tmp/ran; echo {number}", timeout=120)
        return told.stdout

    told = await asyncio.gather(*(one(box, number) for box in boxes for number in range(CALLERS)))
    assert told == [f"{number}\n" for _ in boxes for number in range(CALLERS)]
    assert await asyncio.gather(*map(_ran, boxes)) == [list(range(CALLERS))] * SANDBOXES
