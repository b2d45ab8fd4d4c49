"""Checkpoints over a real stack: what comes back, what is refused, and what a dead gateway leaves."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot import (
    AsyncClient,
    AsyncSandbox,
    BadRequest,
    Conflict,
    FilesRefused,
    NotFound,
    SandboxLost,
    ServerError,
)
from sandlot_gateway.checkpoints.rules import StoreLimits
from sandlot_gateway.checkpoints.store import Store

from tests.gateway.real_stack import ask, client, run, stopped_sidecars
from tests.leaks import no_leaks
from tests.stack import Stack
from tests.waiting import until, until_empty

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces")]

__all__ = ["client"]

OTHERS = "other-key"
MOST = 4


@pytest.fixture(autouse=True)
def _no_leaks() -> None:
    """The stack lives longer than one test here; its own fixture looks for what it leaves."""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with (
        tempfile.TemporaryDirectory(prefix="sandlot-") as directory,
        no_leaks(marker=directory, descriptors=False),
        Stack(
            Path(directory) / "state",
            options=(
                "--pool",
                "warm=2",
                "--checkpoint-max",
                str(200 << 20),
                "--checkpoint-total",
                str(60 << 20),
                "--checkpoint-tenant-count",
                str(MOST),
            ),
            env={"SANDLOT_API_KEYS": f"{OTHERS}:other"},
        ) as running,
    ):
        yield running


async def test_files_deletions_modes_and_links_come_back(client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client, memory="2GiB", disk="1GiB") as first:
        await run(
            first,
            "mkdir /app && cd /app && echo kept > file && chmod 640 file && ln -s file link && ln file hard &&"
            " rm -r /etc/default && mkdir /etc/default && echo new > /etc/default/only && rm /etc/issue &&"
            " head -c 20000000 /dev/urandom > big && sha256sum big > sum && chown 1000:1001 big",
        )
        made = await first.checkpoint()
        assert (made.state, made.sandbox_id, made.image, made.depth) == ("DURABLE", first.id, "host", 0)
        assert made.stored is not None
        assert made.stored > 20_000_000
        await run(first, "rm -r /app")
    # The sandbox is gone; its checkpoint is not.
    async with await AsyncSandbox.create(checkpoint=made, client=client, memory="2GiB") as second:
        assert second.info.image == "host"
        assert second.info.disk == 1 << 30
        seen = await run(
            second,
            "cd /app && sha256sum -c sum && stat -c '%n %a %u:%g' file big && readlink link && test file -ef hard"
            " && ls /etc/default && ! test -e /etc/issue",
        )
        assert seen.splitlines() == ["big: OK", "file 640 0:0", "big 644 1000:1001", "file", "only"]
        await run(second, "echo more >> /app/file")
        third = await second.checkpoint()
        assert (third.parent_id, third.depth) == (made.id, 1)
        assert [one.id for one in await second.checkpoints()] == [third.id]
    async with await AsyncSandbox.create(checkpoint=third.id, client=client, memory="2GiB") as last:
        assert await run(last, "cat /app/file") == "kept\nmore\n"
        with pytest.raises(Conflict, match="cannot be reset"):
            await last.reset()
    for one in (made, third):
        await AsyncSandbox.delete_checkpoint(one.id, client=client)
    with pytest.raises(NotFound):
        await AsyncSandbox.create(checkpoint=made, client=client)


async def test_a_name_finds_the_tenants_own_checkpoints(stack: Stack, client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client) as first:
        made = await first.checkpoint(name="build-1", metadata={"a": "b"})
        assert (made.name, made.metadata) == ("build-1", {"a": "b"})
        with pytest.raises(BadRequest, match=r"metadata: has .* bytes, the limit is 16384"):
            await first.checkpoint(metadata={"a": "x" * 16384})
    assert await AsyncSandbox.find_checkpoints("build-1", client=client) == [made]
    assert await AsyncSandbox.find_checkpoints("build", client=client) == []
    found = ask(stack, "GET", "/sandbox/checkpoints?name=build-1", key=OTHERS)
    assert (found.status_code, found.json()) == (200, {"checkpoints": []})
    await AsyncSandbox.delete_checkpoint(made.id, client=client)


async def test_a_start_command_finds_the_files(client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client) as first:
        await run(first, "echo here > /file")
        made = await first.checkpoint()
    async with await AsyncSandbox.create(
        checkpoint=made, client=client, start_command="cp /file /seen; sleep 1000", pool="warm"
    ) as second:
        assert await run(second, "while [ ! -s /seen ]; do sleep 0.05; done; cat /seen") == "here\n"
    await AsyncSandbox.delete_checkpoint(made.id, client=client)


async def test_fields_that_the_checkpoint_says_are_refused(stack: Stack, client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client) as first:
        made = await first.checkpoint()
    for field, value in (("docker_image", "host"), ("image", "host"), ("disk_size_gb", 5), ("arch", "amd64")):
        answer = ask(stack, "POST", "/sandbox", body={"checkpoint_id": made.id, field: value})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["param"] == field
    answer = ask(stack, "POST", "/sandbox", body={"checkpoint_id": "cp-nothing"})
    assert (answer.status_code, answer.json()["errors"][0]["param"]) == (404, "checkpoint_id")
    with pytest.raises(BadRequest):
        await AsyncSandbox.create(checkpoint=made, client=client, disk="1GiB")
    await AsyncSandbox.delete_checkpoint(made.id, client=client)


async def test_nothing_of_another_tenants_can_be_told(stack: Stack, client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client) as first:
        made = await first.checkpoint()
        for method, path in (
            ("GET", f"/sandbox/checkpoints/{made.id}"),
            ("DELETE", f"/sandbox/checkpoints/{made.id}"),
            ("GET", f"/sandbox/{first.id}/checkpoints"),
            ("POST", f"/sandbox/{first.id}/checkpoints"),
            ("DELETE", f"/sandbox/{first.id}/checkpoints"),
        ):
            assert ask(stack, method, path, key=OTHERS).status_code == 404, path
        answer = ask(stack, "POST", "/sandbox", key=OTHERS, body={"checkpoint_id": made.id})
        assert (answer.status_code, answer.json()["errors"][0]["param"]) == (404, "checkpoint_id")
        batch = {"checkpoint_ids": [made.id]}
        answer = ask(stack, "POST", "/sandbox/checkpoints:batchGet", key=OTHERS, body=batch).json()
        assert (answer["checkpoints"], answer["errors"][0]["code"]) == ([], "NOT_FOUND")
        assert len(ask(stack, "POST", "/sandbox/checkpoints:batchGet", body=batch).json()["checkpoints"]) == 1
        deleted = ask(stack, "DELETE", f"/sandbox/{first.id}/checkpoints").json()
        assert deleted == {"deleted": [made.id], "errors": []}


async def test_one_too_large_says_so(client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client) as first:
        await run(first, "truncate -s 300M /sparse")
        with pytest.raises(FilesRefused, match="over the limit"):
            await first.checkpoint()
        assert (await first.checkpoints())[0].state == "FAILED"
        await run(first, "rm /sparse")
        made = await first.checkpoint()
        assert made.state == "DURABLE"
        await AsyncSandbox.delete_checkpoint(made.id, client=client)


async def test_a_tenant_that_has_as_many_as_it_may_is_told_what_to_do(stack: Stack) -> None:
    async with (
        AsyncClient(url=stack.url, api_key=OTHERS) as client,
        await AsyncSandbox.create(client=client) as first,
    ):
        made = [await first.checkpoint() for _ in range(MOST)]
        told = f"limit is {MOST} .*checkpoint_tenant_count.*delete some"
        with pytest.raises(ServerError, match=told) as full:
            await first.checkpoint()
        assert full.value.status == 507
        assert made[0].id in str(full.value)
        await AsyncSandbox.delete_checkpoint(made.pop(0).id, client=client)
        made.append(await first.checkpoint())
        for one in made:
            await AsyncSandbox.delete_checkpoint(one.id, client=client)


async def test_all_together_have_a_limit(stack: Stack, client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client, memory="2GiB", disk="1GiB") as first:
        await run(first, "head -c 40000000 /dev/urandom > /big")
        made = await first.checkpoint()
        await run(first, "head -c 40000000 /dev/urandom > /big")
        with pytest.raises(ServerError, match="all tenants' checkpoints have reached the limit"):
            await first.checkpoint()
        files = (stack.state_dir / "checkpoints").glob(f"{made.id}.packs.*/*")
        assert sorted(path.name.rpartition(".")[2] for path in files) == ["manifest", "pack"]
        assert not list((stack.state_dir / "checkpoints").glob("*/part"))
        await AsyncSandbox.delete_checkpoint(made.id, client=client)
        again = await first.checkpoint()
        assert again.state == "DURABLE"
        await AsyncSandbox.delete_checkpoint(again.id, client=client)


async def test_a_damaged_archive_ends_the_new_sandbox(stack: Stack, client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client) as first:
        await run(first, "head -c 1000000 /dev/urandom > /big")
        made = await first.checkpoint()
    (pack,) = (stack.state_dir / "checkpoints").glob(f"{made.id}.packs.*/*.pack")
    pack.write_bytes(pack.read_bytes()[:500_000])
    with pytest.raises(SandboxLost, match="cannot restore the checkpoint: the checkpoint is damaged") as lost:
        await AsyncSandbox.create(checkpoint=made, client=client)
    assert lost.value.verdict == "start_failed"
    await AsyncSandbox.delete_checkpoint(made.id, client=client)


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


async def test_files_that_are_being_written(client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client) as first:
        await first.start("while :; do seq 1 50000 > /new && mv /new /counted; done")
        await run(first, "while [ ! -e /counted ]; do sleep 0.05; done")
        made = await first.checkpoint()
        assert made.state == "DURABLE"
    async with await AsyncSandbox.create(checkpoint=made, client=client) as second:
        # One rename is one moment: what was moved into place is whole, unless it was being replaced.
        assert (await run(second, "ls /counted /new 2>/dev/null | head -1")).startswith("/")
    await AsyncSandbox.delete_checkpoint(made.id, client=client)


async def test_documents_are_private(stack: Stack, client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client) as box:
        made = await box.checkpoint()
    directory = stack.state_dir / "checkpoints"
    assert directory.stat().st_mode & 0o777 == 0o700
    kept = list(directory.rglob("*"))
    assert kept
    assert all(path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600) for path in kept)
    await AsyncSandbox.delete_checkpoint(made.id, client=client)


def test_an_ended_sandbox_has_none_made(stack: Stack) -> None:
    made = ask(stack, "POST", "/sandbox", body={"docker_image": "host"}).json()
    ask(stack, "DELETE", f"/sandbox/{made['id']}")
    answer = ask(stack, "POST", f"/sandbox/{made['id']}/checkpoints")
    assert answer.status_code == 409
    assert "RUNNING" in answer.json()["detail"]
    assert ask(stack, "GET", f"/sandbox/{made['id']}/checkpoints").json() == {"checkpoints": []}
    assert ask(stack, "GET", "/sandbox/sb-nothing/checkpoints").status_code == 404
