"""Forks that mount one copy over a real stack: none is left of it, whatever ends, and their files go on elsewhere."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot import AsyncClient, AsyncPools, AsyncSandbox

from tests.e2e.processes import sidecars
from tests.gateway.real_stack import ask, client, run
from tests.leaks import no_leaks
from tests.local.test_image_sandboxes import small_root
from tests.stack import Stack
from tests.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces")]

__all__ = ["client"]

BIG = 4_000_000
COUNTED = "counted-key"  # of a tenant whose copies no other test makes


@pytest.fixture(autouse=True)
def _no_leaks() -> None:
    """The stack lives longer than one test here; its own fixture looks for what it leaves."""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with (
        tempfile.TemporaryDirectory(prefix="sandlot-") as directory,
        no_leaks(marker=directory, descriptors=False),
        Stack(Path(directory) / "state", env={"SANDLOT_API_KEYS": f"{COUNTED}:counted"}) as running,
    ):
        yield running


def held_copies(stack: Stack) -> list[str]:
    """The mount namespaces that the gateway holds."""
    assert stack.process is not None
    directory = f"/proc/{stack.process.pid}/fd"
    names = []
    for fd in os.listdir(directory):
        try:
            names.append(os.readlink(f"{directory}/{fd}"))
        except OSError:  # closed meanwhile
            continue
    return [name for name in names if name.startswith("mnt:")]


async def has_no_copy(box: AsyncSandbox) -> bool:
    return await box.checkpoints() == []


async def used(box: AsyncSandbox) -> int:
    """The bytes of what a sandbox itself wrote."""
    return int(await run(box, "df --output=used -B1 / | tail -1"))


async def test_forks_mount_one_copy_which_the_gateway_then_lets_go(stack: Stack, client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client) as box:
        await run(box, f"head -c {BIG} /dev/urandom > /srv/big; md5sum < /srv/big > /srv/sum")
        async with await box.fork(2) as forks:
            for fork in forks:
                assert await run(fork, "md5sum < /srv/big | cmp - /srv/sum && echo same") == "same\n"
                assert await used(fork) < BIG / 2
            await until(lambda: held_copies(stack) == [])
            await until(lambda: has_no_copy(box))  # its document goes a moment after the memory
            await run(forks[0], "rm /srv/big; echo own > /srv/sum")
            assert await run(forks[1], "stat -c %s /srv/big") == f"{BIG}\n"
            await box.delete()
            again = await forks[0].fork(1)
            assert await run(again[0], "ls /srv; cat /srv/sum") == "sum\nown\n"
            kept = await again[0].checkpoint()
            async with await AsyncSandbox.create(checkpoint=kept, client=client) as restored:
                assert await run(restored, "ls /srv; cat /srv/sum") == "sum\nown\n"
            await again.delete()


async def counted(stack: Stack) -> int | None:
    """The bytes that count for its tenant's checkpoints; None while they have not been measured."""
    answer = await asyncio.to_thread(ask, stack, "GET", "/user/whoami", key=COUNTED)
    uses = {one["name"]: one["used"] for one in answer.json()["data"]["quotas"]}
    return uses["checkpoint_bytes"]


async def test_a_copy_counts_until_its_last_fork_has_ended(stack: Stack) -> None:
    async def is_counted() -> bool:
        return (await counted(stack) or 0) >= BIG

    async def is_free() -> bool:
        return await counted(stack) == 0

    async with (
        AsyncClient(url=stack.url, api_key=COUNTED) as client,
        await AsyncSandbox.create(client=client) as box,
    ):
        await run(box, f"head -c {BIG} /dev/urandom > /srv/big")
        async with await box.fork(2) as forks:
            await until(lambda: held_copies(stack) == [])
            await until(is_counted)
            await forks[0].delete()
            assert await is_counted()
        await until(is_free)
        async with await box.fork(1):
            await until(lambda: held_copies(stack) == [])
            stack.kill()
            stack.start()
            await until(is_counted)


async def test_forks_of_files_with_links_write_to_all_names(stack: Stack, client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client) as box:
        await run(box, "echo one > /srv/a; ln /srv/a /srv/b")
        async with await box.fork(2) as forks:
            for fork in forks:
                assert await run(fork, "echo two > /srv/a; cat /srv/b") == "two\n"


async def test_forks_outlive_their_gateway_and_the_next_one_has_no_copy(
    stack: Stack, client: AsyncClient
) -> None:
    async with await AsyncSandbox.create(client=client) as box:
        await run(box, "echo here > /srv/file")
        async with await box.fork(2) as forks:
            stack.kill()
            stack.start()
            assert [await run(fork, "cat /srv/file") for fork in forks] == ["here\n"] * 2
            assert await box.checkpoints() == []
            assert held_copies(stack) == []


async def test_a_clean_after_a_kill_takes_forks_away(stack: Stack, client: AsyncClient) -> None:
    box = await AsyncSandbox.create(client=client)
    await run(box, "echo here > /srv/file")
    forks = await box.fork(2)
    assert await run(forks[1], "cat /srv/file") == "here\n"
    stack.kill()
    cleaned = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandlot_gateway.backends.local.clean"),
        *("--state-dir", str(stack.state_dir), "--json"),
        stdout=asyncio.subprocess.PIPE,
    )
    told, _ = await cleaned.communicate()
    left = sidecars(stack)
    stack.start()
    assert cleaned.returncode == 0
    assert sum(bool(one["processes"]) for one in json.loads(told)["instances"]) >= 3
    assert left == []


async def test_a_used_instance_does_not_pass_the_files_on(stack: Stack, client: AsyncClient) -> None:
    pools = AsyncPools(client=client)
    async with await AsyncSandbox.create(client=client) as box:
        await run(box, "echo here > /srv/file")
        await pools.set("forks", size=1)
        try:
            for _ in range(2):
                async with await box.fork(1) as forks:
                    assert await run(forks[0], "cat /srv/file") == "here\n"
                async with await AsyncSandbox.create(pool="forks", client=client) as other:
                    assert not await other.files.exists("/srv/file")
        finally:
            await pools.delete("forks")


async def test_forks_of_an_image(stack: Stack, client: AsyncClient, tmp_path: Path) -> None:
    image = small_root(tmp_path / "small.tar", User="root")
    async with await AsyncSandbox.create(str(image), client=client) as box:
        await run(box, "echo changed > /app/hello; echo new > /app/new; cat /app/link")
        async with await box.fork(2) as forks:
            await run(forks[0], "echo mine > /app/new")
            assert (
                await run(forks[1], "cat /app/link /app/new; ls /app") == "changed\nnew\nhello\nlink\nnew\n"
            )
