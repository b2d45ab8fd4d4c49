"""The life of a sandbox, ports, pools, and batches."""

from __future__ import annotations

import uuid

import pytest
from sandlot import (
    AsyncClient,
    AsyncPools,
    AsyncSandbox,
    AuthError,
    BadRequest,
    NotFound,
    PoolReuse,
    Progress,
    SandboxLost,
)

from tests.sdk.conftest import Server


async def test_create_connect_list_delete(client: AsyncClient) -> None:
    label = f"test-{uuid.uuid4().hex}"
    async with await AsyncSandbox.create(
        client=client, labels=[label], memory="512MiB", name="named", timeout=120
    ) as box:
        assert box.info.status == "RUNNING"
        assert box.info.memory == 512 << 20
        assert box.info.labels == (label,)
        found = await AsyncSandbox.list(labels=[label], client=client)
        assert [info.id for info in found if info.id == box.id] == [box.id]
        other = await AsyncSandbox.connect(box.id, client=client)
        assert other.info.name == "named"
        assert (await other.exec("echo same")).stdout == "same\n"
    assert (await box.refresh()).ended
    with pytest.raises(SandboxLost) as caught:
        await box.exec("true")
    assert (caught.value.verdict, caught.value.sandbox_id) == ("deleted", box.id)
    assert not caught.value.infrastructure
    await box.delete()


async def test_a_run_is_the_arguments_or_the_environments(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = f"run-{uuid.uuid4().hex}"
    monkeypatch.setenv("SANDLOT_RUN", run)
    async with (
        await AsyncSandbox.create(client=client) as one,
        await AsyncSandbox.create(client=client, run=f"{run}.2") as other,
    ):
        assert (one.info.run, other.info.run) == (run, f"{run}.2")
        for box in (one, other):
            found = await AsyncSandbox.list(run=box.info.run, client=client)
            assert [info.id for info in found] == [box.id]
        assert {one.id, other.id} <= {info.id for info in await AsyncSandbox.list(client=client)}
        with pytest.raises(ValueError, match=r"^run: must be 1 to 63 of the characters"):
            await AsyncSandbox.list(run="a/b", client=client)
    async with await AsyncSandbox.create(client=client, run="") as box:
        assert box.info.run is None
    monkeypatch.setenv("SANDLOT_RUN", "with blank")
    with pytest.raises(ValueError, match=r"^SANDLOT_RUN: must be 1 to 63 of the characters"):
        await AsyncSandbox.create(client=client)
    monkeypatch.setenv("SANDLOT_RUN", "")
    async with await AsyncSandbox.create(client=client) as box:
        assert box.info.run is None


async def test_an_error_in_the_block_is_not_hidden_by_the_deletion(client: AsyncClient) -> None:
    with pytest.raises(ZeroDivisionError):
        async with await AsyncSandbox.create(client=client) as box:
            raise ZeroDivisionError
    assert (await box.refresh()).ended


async def test_a_start_command_and_its_stop(client: AsyncClient) -> None:
    with pytest.raises(BadRequest) as caught:
        await AsyncSandbox.create(client=client, run_image_command=True)
    assert caught.value.field == "run_image_command"
    with pytest.raises(BadRequest) as caught:
        await AsyncSandbox.create(client=client, stop_signal="NOPE")
    assert caught.value.field == "stop_signal"
    with pytest.raises(BadRequest) as caught:
        await AsyncSandbox.create(client=client, stop_grace=60)
    assert caught.value.field == "stop_grace_seconds"
    async with await AsyncSandbox.create(
        client=client, start_command="sleep 60", stop_signal=2, stop_grace=0.5
    ) as box:
        assert (await box.exec("echo usable")).stdout == "usable\n"


async def test_bulk_delete(client: AsyncClient) -> None:
    boxes = [await AsyncSandbox.create(client=client) for _ in range(2)]
    result = await AsyncSandbox.delete_many([box.id for box in boxes] + ["sb-none"], client=client)
    assert sorted(result.deleted) == sorted(box.id for box in boxes)
    assert list(result.failed) == ["sb-none"]
    with pytest.raises(ValueError, match="either"):
        await AsyncSandbox.delete_many(client=client)


async def test_what_is_refused(client: AsyncClient, server: Server) -> None:
    with pytest.raises(NotFound):
        await AsyncSandbox.connect("sb-none", client=client)
    with pytest.raises(ValueError, match="memory"):
        await AsyncSandbox.create(client=client, memory="lots")
    with pytest.raises(ValueError, match="network"):
        await AsyncSandbox.create(client=client, network="some")
    with pytest.raises(BadRequest) as caught:
        await AsyncSandbox.create("", client=client)
    assert caught.value.field
    async with AsyncClient(url=server.url, api_key="wrong") as stranger:
        with pytest.raises(AuthError):
            await AsyncSandbox.list(client=stranger)


async def test_the_same_idempotency_key_is_the_same_sandbox(client: AsyncClient) -> None:
    key = uuid.uuid4().hex
    async with await AsyncSandbox.create(client=client, idempotency_key=key) as first:
        second = await AsyncSandbox.create(client=client, idempotency_key=key)
        assert first.id == second.id


async def test_reset_makes_it_new(box: AsyncSandbox) -> None:
    await box.files.write("/tmp/trace", "x")
    await box.reset()
    assert not await box.files.exists("/tmp/trace")
    assert (await box.exec("echo usable")).stdout == "usable\n"


async def test_ports(box: AsyncSandbox) -> None:
    url = await box.expose(8000, name="web")
    assert url.startswith("http://")
    for port, protocol in ((9000, "tcp"), (9001, "udp")):
        endpoint = await box.expose(port, protocol=protocol)
        assert endpoint.rpartition(":")[2].isdigit()
    assert sorted(item.port for item in await box.exposures()) == [8000, 9000, 9001]
    for port in (8000, 9000, 9001):
        await box.unexpose(port)
    with pytest.raises(NotFound):
        await box.unexpose(8000)


async def test_pools(client: AsyncClient) -> None:
    pools = AsyncPools(client=client)
    made = await pools.set("tests/odd name"[:5], size=1, memory="256MiB")
    assert (made.name, made.size, made.memory) == ("tests", 1, 256 << 20)
    assert "tests" in [pool.name for pool in await pools.list()]
    seen: list[int] = []
    warm = await pools.wait_warm("tests", timeout=60, progress=lambda pool: seen.append(pool.ready))
    assert warm.warm
    assert seen[-1] == warm.ready == 1
    kept = await pools.set("tests", size=0)
    assert (kept.size, kept.memory, kept.image) == (0, 256 << 20, made.image)
    await pools.set("tests", reuse="tenant", max_uses=5)
    reused = await pools.set("tests", max_age=60)
    assert reused.reuse == PoolReuse(policy="tenant", max_uses=5, max_age=60.0)
    with pytest.raises(BadRequest) as refused:
        await pools.set("new")
    assert refused.value.field == "size"
    assert (await pools.set("tests", runtime_class="namespaces")).runtime_class == "namespaces"
    assert (await pools.set("tests", memory="128MiB")).runtime_class == "namespaces"
    assert (await pools.set("tests", runtime_class="")).runtime_class is None
    with pytest.raises(BadRequest) as refused:
        await pools.set("tests", runtime_class="runc")
    assert refused.value.field == "runtime_class"
    await pools.delete("tests")
    with pytest.raises(NotFound):
        await pools.delete("tests")
    with pytest.raises(NotFound):
        await pools.wait_warm("tests")


async def test_refusals_name_the_argument(client: AsyncClient, box: AsyncSandbox) -> None:
    for arguments, name in (
        ({"cpu": -1}, "cpu"),
        ({"pids": 1}, "pids"),
        ({"memory": 1}, "memory"),
        ({"env": {"A=B": "c"}}, "env"),
        ({"labels": [""]}, "labels"),
        ({"run": "with blank"}, "run"),
    ):
        with pytest.raises((BadRequest, ValueError), match=f"^{name}"):
            await AsyncSandbox.create(client=client, **arguments)
    for arguments, name in (
        ({"timeout": "10"}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"env": {"SEED": 1}}, "env"),
        ({"shell": "zsh"}, "shell"),
        ({"op_id": "with blank"}, "op_id"),
    ):
        with pytest.raises(ValueError, match=f"^{name}"):
            await box.exec("true", **arguments)
    for command in ([], ["sleep", 1], b"true"):
        with pytest.raises(ValueError, match=r"^command"):
            await box.exec(command)
    with pytest.raises(ValueError, match=r"^pty"):
        await box.start("true", pty=(0, 24))
    with pytest.raises(ValueError, match=r"^port"):
        await box.expose(80000)
    with pytest.raises(ValueError, match=r"^mode"):
        await box.files.write("/tmp/x", "", mode="0644")
    with pytest.raises(ValueError, match=r"^data"):
        await box.files.write("/tmp/x", 5)
    with pytest.raises(ValueError, match=r"^concurrency"):
        await box.map_execs(["true"], concurrency=0)
    with pytest.raises(ValueError, match=r"^sandbox_id"):
        await AsyncSandbox.connect("", client=client)
    with pytest.raises(NotFound):
        await AsyncSandbox.connect("../../pools", client=client)


async def test_many_commands_at_once_in_order(box: AsyncSandbox) -> None:
    seen: list[Progress] = []
    results = await box.map_execs((f"echo {n}" for n in range(20)), concurrency=5, progress=seen.append)
    assert [result.stdout for result in results] == [f"{n}\n" for n in range(20)]
    assert [step.done for step in seen] == list(range(1, 21))
    assert max(step.running for step in seen) < 5
    assert seen[-1].total == 20


async def test_map_gives_each_item_its_own_sandbox(client: AsyncClient) -> None:
    async def work(box: AsyncSandbox, item: int) -> tuple[str, str]:
        if item == 2:
            raise ValueError("two")
        return box.id, (await box.exec(f"echo {item}")).stdout

    results = await AsyncSandbox.map(
        work, [1, 2, 3], concurrency=2, return_exceptions=True, client=client, labels=["mapped"]
    )
    assert [result[1] for result in (results[0], results[2])] == ["1\n", "3\n"]
    assert results[0][0] != results[2][0]
    assert isinstance(results[1], ValueError)
    with pytest.raises(ValueError, match="two"):
        await AsyncSandbox.map(work, [2], client=client)
    assert not await AsyncSandbox.map(work, [], client=client)
