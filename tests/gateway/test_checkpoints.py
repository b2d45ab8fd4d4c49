"""Checkpoints over a real stack: what comes back, and what is refused."""

from __future__ import annotations

import os

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

from tests.gateway.checkpoint_stack import MOST, OTHERS, _no_leaks, stack
from tests.gateway.real_stack import ask, client, run
from tests.stack import Stack

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces")]

__all__ = ["_no_leaks", "client", "stack"]


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
