"""Checkpoints over a real stack whose gateway dies, or that are deleted, while they are written."""

from __future__ import annotations

import os

import pytest
from sandlot import AsyncClient, AsyncSandbox, Conflict, NotFound
from sandlot_gateway.checkpoints.rules import StoreLimits
from sandlot_gateway.checkpoints.store import Store

from tests.gateway.checkpoint_stack import _no_leaks, stack
from tests.gateway.real_stack import ask, client, run, stopped_sidecars
from tests.stack import Stack
from tests.waiting import until, until_empty

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces")]

__all__ = ["_no_leaks", "client", "stack"]


async def test_a_gateway_that_dies_while_one_is_written(stack: Stack, client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client, memory="2GiB", disk="1GiB") as first:
        await run(first, "echo kept > /small")
        good = await first.checkpoint()
        await run(first, "head -c 50000000 /dev/urandom > /big")
        with stopped_sidecars(stack):  # else the files may all be there before the gateway dies
            begun = ask(stack, "POST", f"/sandbox/{first.id}/checkpoints").json()
            assert begun["state"] == "PENDING"
            assert ask(stack, "POST", f"/sandbox/{first.id}/checkpoints").status_code == 409
            stack.kill()
        stack.start()
        states = {one.id: one for one in await first.checkpoints()}
        assert states[good.id].state == "DURABLE"
        assert states[begun["id"]].state == "FAILED"
        assert "gateway" in str(states[begun["id"]].error)
        answer = ask(stack, "POST", "/sandbox", body={"checkpoint_id": begun["id"]})
        assert (answer.status_code, answer.json()["errors"][0]["param"]) == (409, "checkpoint_id")
        async with await AsyncSandbox.create(checkpoint=good, client=client) as second:
            assert await run(second, "cat /small") == "kept\n"
        assert len(ask(stack, "DELETE", f"/sandbox/{first.id}/checkpoints").json()["deleted"]) == 2


async def test_one_that_is_written_is_deleted_at_once_and_another_can_be_made(
    stack: Stack, client: AsyncClient
) -> None:
    directory = stack.state_dir / "checkpoints"
    async with await AsyncSandbox.create(client=client) as first:
        with stopped_sidecars(stack):
            begun = await first.checkpoint(wait=0)
            await AsyncSandbox.delete_checkpoint(begun.id, client=client)
            with pytest.raises(NotFound):
                await AsyncSandbox.get_checkpoint(begun.id, client=client)
            assert await first.checkpoints() == []
            with pytest.raises(NotFound):
                await AsyncSandbox.create(checkpoint=begun, client=client)
            await until_empty(lambda: list(directory.glob(f"{begun.id}*")))
            again = await first.checkpoint(wait=0)
            deleted = ask(stack, "DELETE", f"/sandbox/{first.id}/checkpoints").json()
            assert deleted == {"deleted": [again.id], "errors": []}
            await until_empty(lambda: list(directory.glob(f"{again.id}*")))
            last = await first.checkpoint(wait=0)
        # The sidecar, too, has left what nobody reads.

        async def written() -> bool:
            found = await AsyncSandbox.get_checkpoint(last.id, client=client)
            assert found.state in ("PENDING", "DURABLE"), found
            return found.state == "DURABLE"

        await until(written)
        await AsyncSandbox.delete_checkpoint(last.id, client=client)


async def test_one_that_another_gateway_deletes_is_written_no_further(
    stack: Stack, client: AsyncClient
) -> None:
    directory = stack.state_dir / "checkpoints"
    theirs = Store(directory, limits=StoreLimits())
    async with await AsyncSandbox.create(client=client) as first:
        with stopped_sidecars(stack):
            begun = await first.checkpoint(wait=0)
            found = theirs.get(begun.id)
            assert found is not None
            theirs.delete(found)
            assert await first.checkpoints() == []
            assert len(list(directory.glob(f"{begun.id}*.deleted"))) == 1
            assert not (directory / f"{begun.id}.json").exists()
            with pytest.raises(Conflict, match="not yet stopped writing a deleted checkpoint"):
                await first.checkpoint()
        await until_empty(lambda: list(directory.glob(f"{begun.id}*")))
        made = await first.checkpoint()
        await AsyncSandbox.delete_checkpoint(made.id, client=client)
