"""What a claim brings along keeps the warm hit, and claims through two gateways at once have one owner each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
from sandlot import Client, Sandbox

from tests.kubernetes.boxes import (
    POOLED,
    filled,
    only_records,
    pod_of,
    resource_of,
    resources,
    until,
    warm,
)
from tests.kubernetes.killing import warm_everywhere
from tests.kubernetes.stack import IMAGE, POOL, Stack

SECRET = "hidden-from-everybody-else"


def test_what_a_claim_brings_keeps_the_warm_hit(stack: Stack, client: Client) -> None:
    warm_everywhere(stack, size=1)
    with warm(
        client,
        env={"COLOUR": "blue", "PATH_OF_MINE": "/opt/x y"},
        secrets={"API_KEY_OF_MINE": SECRET},
        labels=["claims", "run=7"],
        workdir="/var/tmp",
        network="none",
        start_command="echo started in $PWD with $COLOUR; exec sleep 600",
        name="claimed",
        idle_timeout=600,
    ) as box:
        assert box.info.pool_hit is True
        told = box.exec('printf "%s\\n" "$COLOUR" "$PATH_OF_MINE" "$API_KEY_OF_MINE" "$PWD"', timeout=30)
        assert told.stdout.splitlines() == ["blue", "/opt/x y", SECRET, "/var/tmp"]
        interfaces = box.exec("tail -n +3 /proc/net/dev | cut -d: -f1", timeout=30).stdout.split()
        assert set(interfaces) <= {"lo"}
        until(lambda: "started in" in box.logs())
        assert box.logs() == "started in /var/tmp with blue\n"
        assert "sleep" in box.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '", timeout=30).stdout
        found = Sandbox.list(labels=["claims", "run=7"], client=client)
        assert [each.id for each in found] == [box.id]
        resource = resource_of(stack, box)
        assert resource["spec"]["labels"] == ["claims", "run=7"]
        # What the claim is made of is between gateway and sidecar: nobody who may read the API server sees it.
        assert SECRET not in json.dumps([resource, pod_of(stack, box)])


def test_without_a_network_nothing_is_reached_at_all(stack: Stack, client: Client) -> None:
    warm_everywhere(stack, size=1)
    with warm(client, network="none") as box:
        assert box.info.pool_hit is True
        code = "import socket; socket.create_connection(('10.96.0.10', 53), 3)"
        refused = box.exec(["python3", "-c", code], timeout=30)
        assert "Network is unreachable" in refused.stderr
        name = box.exec(["python3", "-c", "import socket; socket.getaddrinfo('kubernetes.default', 443)"])
        assert "gaierror" in name.stderr


@contextmanager
def each_gateway(stack: Stack) -> Iterator[list[Client]]:
    """A client of each, by its pod's own address."""
    selector = "app.kubernetes.io/name=sandlot,app.kubernetes.io/component=gateway"
    pods = stack.get("pods", "-n", stack.namespace, "-l", selector)["items"]
    running = [
        pod
        for pod in pods
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]
    with ExitStack() as clients:
        yield [
            clients.enter_context(Client(url=f"http://{pod['status']['podIP']}:8642", api_key=stack.api_key))
            for pod in running
        ]  # fmt: skip


@pytest.mark.parametrize("stack", ["runc"], indirect=True)
def test_two_gateways_one_pool_and_many_claims_at_once(stack: Stack) -> None:
    filled(stack, size=POOL)
    with each_gateway(stack) as clients, ThreadPoolExecutor(10) as threads:
        assert len(clients) == 2
        wanted = [
            threads.submit(Sandbox.create, IMAGE, client=clients[number % 2], **POOLED, wait=300)
            for number in range(10)
        ]
        try:
            made = [each.result() for each in wanted]
            assert len({box.id for box in made}) == 10
            # How many is not sure: what the pool's status says is some seconds old.
            assert any(box.info.pool_hit for box in made)
            for box in made:
                box.files.write("/owner", box.id.encode())
            # Each is used through the other gateway, which has to find whose it is.
            for number, box in enumerate(made):
                same = Sandbox.connect(box.id, client=clients[(number + 1) % 2])
                assert same.exec("cat /owner", timeout=60).stdout == box.id
            owners = Counter(
                each["spec"].get("podName") or each["metadata"]["name"]
                for each in only_records(stack, {box.id for box in made})
            )
            assert len(owners) == 10
            assert set(owners.values()) == {1}
        finally:
            for each in wanted:
                if each.exception() is None:
                    each.result().delete()
    filled(stack, size=POOL)


@pytest.mark.parametrize("stack", ["runc"], indirect=True)
def test_a_create_that_was_answered_pending_is_known_through_the_other_gateway(stack: Stack) -> None:
    body = {"docker_image": IMAGE, "cpu_cores": 1, "memory_gb": 0.3, "disk_size_gb": 1, "wait_seconds": 0}
    with each_gateway(stack) as (one, other):
        # Both hear the API server: without it a create is known to its own gateway only.
        until(lambda: all(each.call("GET", "/pools", timeout=30)["pools"] for each in (one, other)))
        made = one.call("POST", "/sandbox", body=body, timeout=30)
        assert made["status"] == "PENDING"
        same = Sandbox.connect(made["id"], client=other)
        try:
            assert same.exec("echo on", timeout=120).stdout == "on\n"
            assert same.refresh().pool_hit is False
            # Its pod's own resource tells of it, and that of the promise is gone.
            until(lambda: made["id"] not in [each["metadata"]["name"] for each in resources(stack)])
            [record] = only_records(stack, {made["id"]})
            assert record["metadata"]["name"].startswith("i-")
        finally:
            same.delete()
        first = Sandbox.connect(made["id"], client=one)
        assert until(lambda: first.refresh().verdict) == "deleted"
