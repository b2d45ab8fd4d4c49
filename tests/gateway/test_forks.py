"""Forks over a real stack: the files of one moment in all of them or in none, and nothing left of the copy."""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sandlot import AsyncClient, AsyncSandbox, BadRequest, Busy, Conflict, NotFound, SandboxLost

from tests import plain_http
from tests.e2e.processes import children, sidecars
from tests.gateway.real_stack import ask, client, run, stopped_sidecars
from tests.leaks import no_leaks
from tests.stack import Stack
from tests.stopped import stopped
from tests.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces")]

__all__ = ["client"]

OTHERS, FEW = "other-key", "few-key"


@pytest.fixture(autouse=True)
def _no_leaks() -> None:
    """The stack lives longer than one test here; its own fixture looks for what it leaves."""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with tempfile.TemporaryDirectory(prefix="sandlot-") as directory:
        quotas = Path(directory) / "quotas.json"
        quotas.write_text(json.dumps({"few": {"sandboxes": 3}}))
        with (
            no_leaks(marker=directory, descriptors=False),
            Stack(
                Path(directory) / "state",
                options=("--quotas", str(quotas), "--checkpoint-max", str(50 << 20)),
                env={"SANDLOT_API_KEYS": f"{OTHERS}:other,{FEW}:few"},
            ) as running,
        ):
            yield running


async def no_copy_of(box: AsyncSandbox) -> None:
    async def none() -> bool:
        return await box.checkpoints() == []

    await until(none)


async def no_copy_but_what_stopped(box: AsyncSandbox) -> None:
    """The copy of a gateway that died is FAILED until it expires, unless a request with its key makes another one."""
    stopped_so = ("FAILED", "the gateway stopped while it was being written")

    async def none() -> bool:
        return {(one.state, one.error) for one in await box.checkpoints()} <= {stopped_so}

    await until(none)


def claims(stack: Stack) -> int:
    """How many claims sidecars have accepted from this gateway."""
    text = plain_http.request(
        "GET", f"{stack.url}/metrics", headers={"Authorization": f"Bearer {stack.api_key}"}
    ).text
    found = re.search(r'^sandlot_claims_total\{outcome="claimed"\} (\S+)$', text, re.MULTILINE)
    return int(float(found[1])) if found is not None else 0


async def sidecar(stack: Stack, box: AsyncSandbox) -> int:
    """The process of a sandbox's own sidecar."""
    inside = (await run(box, "readlink /proc/self/ns/pid")).strip()
    (found,) = [one for one in sidecars(stack) if inside in namespaces_below(one)]
    return found


def namespaces_below(pid: int) -> set[str]:
    """The process namespaces of its children's children."""
    found: set[str] = set()
    for child in children(pid):
        with suppress(OSError):  # it has ended
            found.update(os.readlink(f"/proc/{one}/ns/pid") for one in children(child))
    return found


async def test_forks_have_the_files_of_their_moment_and_go_their_own_ways(client: AsyncClient) -> None:
    async with await AsyncSandbox.create(
        client=client,
        name="parent",
        env={"A": "1"},
        labels=["kept"],
        run="step-7",
        cpu=0.5,
        timeout=900,
        start_command="echo started >> /starts; sleep 1000",
    ) as box:
        await until(lambda: box.files.exists("/starts"))
        process = await box.start("sleep 1000")
        await run(box, "mkdir /srv/w && echo before > /srv/w/file && rm /etc/issue")
        async with await box.fork(3) as forks:
            await run(box, "echo parent > /srv/w/file")
            assert [fork.info.name for fork in forks] == ["parent-0", "parent-1", "parent-2"]
            for fork in forks:
                info = fork.info
                assert (info.labels, info.run, info.cpu, info.timeout) == (("kept",), "step-7", 0.5, 900)
                assert await run(
                    fork, f"echo {fork.id} >> /srv/w/file; cat /srv/w/file /starts; echo $A"
                ) == (f"before\n{fork.id}\nstarted\n1\n")
                assert not await fork.files.exists("/etc/issue")
            assert await run(box, "cat /srv/w/file") == "parent\n"
            await no_copy_of(box)
            second = await forks[0].fork(labels=[], name="again", timeout=60)
            assert (second[0].info.name, second[0].info.labels, second[0].info.timeout) == ("again-0", (), 60)
            assert await run(second[0], "wc -l < /srv/w/file") == "2\n"
            await second.delete()
        assert await AsyncSandbox.list(group=forks.id, client=client) == []
        await process.kill()
        assert (await process.wait()).signal == 9  # it ran on


async def test_a_start_command_runs_where_asked(client: AsyncClient) -> None:
    async with await AsyncSandbox.create(
        client=client, start_command="echo started >> /starts; sleep 1000"
    ) as box:
        await until(lambda: box.files.exists("/starts"))
        async with await box.fork(start_command=True) as same:
            await run(same[0], "while [ $(wc -l < /starts) != 2 ]; do sleep 0.05; done")
        async with await box.fork(start_command="echo other > /other; sleep 1000") as other:
            await run(other[0], "while [ ! -s /other ]; do sleep 0.05; done; [ $(wc -l < /starts) = 1 ]")
        both = {"same_start_command": True, "start_command": "true"}
        with pytest.raises(BadRequest, match="leave one of the two out"):
            await client.call("POST", f"/sandbox/{box.id}/fork", body=both)


async def test_more_than_a_quota_allows_is_none_and_copies_nothing(stack: Stack) -> None:
    async with (
        AsyncClient(url=stack.url, api_key=FEW) as client,
        await AsyncSandbox.create(client=client) as box,
    ):
        with pytest.raises(BadRequest, match="count: this group asks for 4 sandboxes"):
            await box.fork(4)
        with pytest.raises(Busy, match="quota sandboxes of tenant 'few'"):
            await box.fork(3, wait=1)
        assert [info.id for info in await AsyncSandbox.list(client=client)] == [box.id]
        assert await box.checkpoints() == []
        async with await box.fork(2) as forks:
            assert len(forks) == 2


async def test_files_that_cannot_be_copied_fail_the_forks_as_a_whole(client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client) as box:
        await run(box, "truncate -s 100M /sparse")
        with pytest.raises(SandboxLost, match="over the limit") as lost:
            await box.fork(2, idempotency_key="large")
        assert lost.value.verdict == "start_failed"
        await no_copy_of(box)
        await run(box, "rm /sparse")
        async with await box.fork(
            2, idempotency_key="large"
        ) as forks:  # the key of what came to nothing is free
            assert len(forks) == 2


@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
async def test_one_key_is_one_fork_also_of_a_gateway_that_died(
    stack: Stack, client: AsyncClient, late: bool
) -> None:
    """`late`: after forks have claimed their sandboxes, which end. They may have also if it died early."""
    async with await AsyncSandbox.create(client=client, network="none") as box:
        await run(box, "echo here > /file")
        body = {"count": 2, "idempotency_key": f"k-{late}", "wait_seconds": 0}
        before = claims(stack)
        with stopped(await sidecar(stack, box)) if late else stopped_sidecars(stack):
            begun = ask(stack, "POST", f"/sandbox/{box.id}/fork", body=body).json()
            assert (begun["status"], begun["idempotency_key"]) == ("PENDING", body["idempotency_key"])
            if late:
                await until(lambda: claims(stack) >= before + 2)
            stack.kill()
        stack.start()
        key = begun["idempotency_key"]
        try:
            forks = await box.fork(2, idempotency_key=key)
            assert forks.id == begun["id"]
        except (Conflict, SandboxLost):
            key = "another"
            forks = await box.fork(2, idempotency_key=key)
        assert [await run(fork, "cat /file") for fork in forks] == ["here\n"] * 2
        await run(box, "echo later > /file")
        again = await box.fork(2, idempotency_key=key)
        assert [one.id for one in again] == [one.id for one in forks]
        with pytest.raises(Conflict, match="idempotency_key"):
            await box.fork(1, idempotency_key=key)
        if key == "another":
            await no_copy_but_what_stopped(box)
        else:
            await no_copy_of(box)
        await forks.delete()


async def test_a_caller_that_leaves_has_nothing_left(stack: Stack, client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client, network="none", labels=["left"]) as box:
        head = f"POST /api/v1/sandbox/{box.id}/fork HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {stack.api_key}"
        with stopped_sidecars(stack):
            _, caller = await asyncio.open_connection("127.0.0.1", stack.port)
            caller.write(
                f'{head}\r\ncontent-length: 12\r\ncontent-type: application/json\r\n\r\n{{"count": 2}}'.encode()
            )
            (copy,) = await until(box.checkpoints)
            assert copy.state == "PENDING"
            caller.close()
            await no_copy_of(box)

        async def alone() -> bool:
            return [one.id for one in await AsyncSandbox.list(labels=["left"], client=client)] == [box.id]

        await until(alone)


async def test_who_may_fork_what(stack: Stack, client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client, secrets={"TOKEN": "s3cret"}) as box:
        other = ask(stack, "POST", f"/sandbox/{box.id}/fork", key=OTHERS, body={})
        assert other.status_code == 404
        with pytest.raises(
            BadRequest, match="secrets: the value of the sandbox's secret 'TOKEN' is not kept"
        ):
            await box.fork()
        async with await box.fork(secrets={"TOKEN": "another"}) as forks:
            assert await run(forks[0], "echo $TOKEN") == "another\n"
    with pytest.raises(Conflict, match="a fork needs a RUNNING one"):
        await box.fork(secrets={"TOKEN": "another"})
    with pytest.raises(NotFound):
        await client.call("POST", "/sandbox/sb-nothing/fork", body={})
