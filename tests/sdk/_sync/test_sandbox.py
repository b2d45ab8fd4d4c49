# This file is auto-generated from tests/sdk/_async/test_sandbox.py by tools/async_to_sync.py: do not change it.
"""The life of a sandbox, ports, pools, and batches."""

from __future__ import annotations

import uuid

import pytest
from sandlot import (
    AuthError,
    BadRequest,
    Client,
    NotFound,
    PoolReuse,
    Pools,
    Progress,
    Sandbox,
    SandboxLost,
)

from tests.sdk.conftest import Server


def test_create_connect_list_delete(client: Client) -> None:
    label = f"test-{uuid.uuid4().hex}"
    with Sandbox.create(client=client, labels=[label], memory="512MiB", name="named", timeout=120) as box:
        assert box.info.status == "RUNNING"
        assert box.info.memory == 512 << 20
        assert box.info.labels == (label,)
        found = Sandbox.list(labels=[label], client=client)
        assert [info.id for info in found if info.id == box.id] == [box.id]
        other = Sandbox.connect(box.id, client=client)
        assert other.info.name == "named"
        assert (other.exec("echo same")).stdout == "same\n"
    assert (box.refresh()).ended
    with pytest.raises(SandboxLost) as caught:
        box.exec("true")
    assert (caught.value.verdict, caught.value.sandbox_id) == ("deleted", box.id)
    assert not caught.value.infrastructure
    box.delete()


def test_a_run_is_the_arguments_or_the_environments(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    run = f"run-{uuid.uuid4().hex}"
    monkeypatch.setenv("SANDLOT_RUN", run)
    with (
        Sandbox.create(client=client) as one,
        Sandbox.create(client=client, run=f"{run}.2") as other,
    ):
        assert (one.info.run, other.info.run) == (run, f"{run}.2")
        for box in (one, other):
            found = Sandbox.list(run=box.info.run, client=client)
            assert [info.id for info in found] == [box.id]
        assert {one.id, other.id} <= {info.id for info in Sandbox.list(client=client)}
        with pytest.raises(ValueError, match=r"^run: must be 1 to 63 of the characters"):
            Sandbox.list(run="a/b", client=client)
    with Sandbox.create(client=client, run="") as box:
        assert box.info.run is None
    monkeypatch.setenv("SANDLOT_RUN", "with blank")
    with pytest.raises(ValueError, match=r"^SANDLOT_RUN: must be 1 to 63 of the characters"):
        Sandbox.create(client=client)
    monkeypatch.setenv("SANDLOT_RUN", "")
    with Sandbox.create(client=client) as box:
        assert box.info.run is None


def test_an_error_in_the_block_is_not_hidden_by_the_deletion(client: Client) -> None:
    with pytest.raises(ZeroDivisionError):
        with Sandbox.create(client=client) as box:
            raise ZeroDivisionError
    assert (box.refresh()).ended


def test_a_start_command_and_its_stop(client: Client) -> None:
    with pytest.raises(BadRequest) as caught:
        Sandbox.create(client=client, run_image_command=True)
    assert caught.value.field == "run_image_command"
    with pytest.raises(BadRequest) as caught:
        Sandbox.create(client=client, stop_signal="NOPE")
    assert caught.value.field == "stop_signal"
    with pytest.raises(BadRequest) as caught:
        Sandbox.create(client=client, stop_grace=60)
    assert caught.value.field == "stop_grace_seconds"
    with Sandbox.create(client=client, start_command="sleep 60", stop_signal=2, stop_grace=0.5) as box:
        assert (box.exec("echo usable")).stdout == "usable\n"


def test_bulk_delete(client: Client) -> None:
    boxes = [Sandbox.create(client=client) for _ in range(2)]
    result = Sandbox.delete_many([box.id for box in boxes] + ["sb-none"], client=client)
    assert sorted(result.deleted) == sorted(box.id for box in boxes)
    assert list(result.failed) == ["sb-none"]
    with pytest.raises(ValueError, match="either"):
        Sandbox.delete_many(client=client)


def test_what_is_refused(client: Client, server: Server) -> None:
    with pytest.raises(NotFound):
        Sandbox.connect("sb-none", client=client)
    with pytest.raises(ValueError, match="memory"):
        Sandbox.create(client=client, memory="lots")
    with pytest.raises(ValueError, match="network"):
        Sandbox.create(client=client, network="some")
    with pytest.raises(BadRequest) as caught:
        Sandbox.create("", client=client)
    assert caught.value.field
    with Client(url=server.url, api_key="wrong") as stranger:
        with pytest.raises(AuthError):
            Sandbox.list(client=stranger)


def test_the_same_idempotency_key_is_the_same_sandbox(client: Client) -> None:
    key = uuid.uuid4().hex
    with Sandbox.create(client=client, idempotency_key=key) as first:
        second = Sandbox.create(client=client, idempotency_key=key)
        assert first.id == second.id


def test_reset_makes_it_new(box: Sandbox) -> None:
    box.files.write("/tmp/trace", "x")
    box.reset()
    assert not box.files.exists("/tmp/trace")
    assert (box.exec("echo usable")).stdout == "usable\n"


def test_ports(box: Sandbox) -> None:
    url = box.expose(8000, name="web")
    assert url.startswith("http://")
    for port, protocol in ((9000, "tcp"), (9001, "udp")):
        endpoint = box.expose(port, protocol=protocol)
        assert endpoint.rpartition(":")[2].isdigit()
    assert sorted(item.port for item in box.exposures()) == [8000, 9000, 9001]
    for port in (8000, 9000, 9001):
        box.unexpose(port)
    with pytest.raises(NotFound):
        box.unexpose(8000)


def test_pools(client: Client) -> None:
    pools = Pools(client=client)
    made = pools.set("tests/odd name"[:5], size=1, memory="256MiB")
    assert (made.name, made.size, made.memory) == ("tests", 1, 256 << 20)
    assert "tests" in [pool.name for pool in pools.list()]
    seen: list[int] = []
    warm = pools.wait_warm("tests", timeout=60, progress=lambda pool: seen.append(pool.ready))
    assert warm.warm
    assert seen[-1] == warm.ready == 1
    kept = pools.set("tests", size=0)
    assert (kept.size, kept.memory, kept.image) == (0, 256 << 20, made.image)
    pools.set("tests", reuse="tenant", max_uses=5)
    reused = pools.set("tests", max_age=60)
    assert reused.reuse == PoolReuse(policy="tenant", max_uses=5, max_age=60.0)
    with pytest.raises(BadRequest) as refused:
        pools.set("new")
    assert refused.value.field == "size"
    assert (pools.set("tests", runtime_class="namespaces")).runtime_class == "namespaces"
    assert (pools.set("tests", memory="128MiB")).runtime_class == "namespaces"
    assert (pools.set("tests", runtime_class="")).runtime_class is None
    with pytest.raises(BadRequest) as refused:
        pools.set("tests", runtime_class="runc")
    assert refused.value.field == "runtime_class"
    pools.delete("tests")
    with pytest.raises(NotFound):
        pools.delete("tests")
    with pytest.raises(NotFound):
        pools.wait_warm("tests")


def test_refusals_name_the_argument(client: Client, box: Sandbox) -> None:
    for arguments, name in (
        ({"cpu": -1}, "cpu"),
        ({"pids": 1}, "pids"),
        ({"memory": 1}, "memory"),
        ({"env": {"A=B": "c"}}, "env"),
        ({"labels": [""]}, "labels"),
        ({"run": "with blank"}, "run"),
    ):
        with pytest.raises((BadRequest, ValueError), match=f"^{name}"):
            Sandbox.create(client=client, **arguments)
    for arguments, name in (
        ({"timeout": "10"}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"env": {"SEED": 1}}, "env"),
        ({"shell": "zsh"}, "shell"),
        ({"op_id": "with blank"}, "op_id"),
    ):
        with pytest.raises(ValueError, match=f"^{name}"):
            box.exec("true", **arguments)
    for command in ([], ["sleep", 1], b"true"):
        with pytest.raises(ValueError, match=r"^command"):
            box.exec(command)
    with pytest.raises(ValueError, match=r"^pty"):
        box.start("true", pty=(0, 24))
    with pytest.raises(ValueError, match=r"^port"):
        box.expose(80000)
    with pytest.raises(ValueError, match=r"^mode"):
        box.files.write("/tmp/x", "", mode="0644")
    with pytest.raises(ValueError, match=r"^data"):
        box.files.write("/tmp/x", 5)
    with pytest.raises(ValueError, match=r"^concurrency"):
        box.map_execs(["true"], concurrency=0)
    with pytest.raises(ValueError, match=r"^sandbox_id"):
        Sandbox.connect("", client=client)
    with pytest.raises(NotFound):
        Sandbox.connect("../../pools", client=client)


def test_many_commands_at_once_in_order(box: Sandbox) -> None:
    seen: list[Progress] = []
    results = box.map_execs((f"echo {n}" for n in range(20)), concurrency=5, progress=seen.append)
    assert [result.stdout for result in results] == [f"{n}\n" for n in range(20)]
    assert [step.done for step in seen] == list(range(1, 21))
    assert max(step.running for step in seen) < 5
    assert seen[-1].total == 20


def test_map_gives_each_item_its_own_sandbox(client: Client) -> None:
    def work(box: Sandbox, item: int) -> tuple[str, str]:
        if item == 2:
            raise ValueError("two")
        return box.id, (box.exec(f"echo {item}")).stdout

    results = Sandbox.map(
        work, [1, 2, 3], concurrency=2, return_exceptions=True, client=client, labels=["mapped"]
    )
    assert [result[1] for result in (results[0], results[2])] == ["1\n", "3\n"]
    assert results[0][0] != results[2][0]
    assert isinstance(results[1], ValueError)
    with pytest.raises(ValueError, match="two"):
        Sandbox.map(work, [2], client=client)
    assert not Sandbox.map(work, [], client=client)
