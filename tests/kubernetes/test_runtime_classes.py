"""A pool's runtime class over the API, changed while it runs, and UDP ports of sandboxes under two of them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sandlot import BadRequest, Client, PoolInfo, Pools, Sandbox

from tests.kubernetes.boxes import pod_of, until
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import IMAGE, Stack

# Of UDP at every node. No other release of the tests has it, and Kubernetes gives Services without a port those above
# 30085.
PORT = 30070
IN_BOX = 5353
SIZE: dict[str, Any] = {"cpu": 0.5, "memory": 256 << 20, "disk": 1 << 30}
# Answers each datagram with the port that it came from, and its bytes in reverse.
ECHO = r"""
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(('0.0.0.0', int(sys.argv[1])))
open('/tmp/ready', 'w').close()
while True:
    data, sender = server.recvfrom(65535)
    server.sendto(b'%d ' % sender[1] + data[::-1], sender)
"""


@dataclass(frozen=True)
class Site:
    stack: Stack
    client: Client
    plain: str  # a RuntimeClass of runc
    missing: str  # one that requests may name, and the cluster lacks

    @property
    def pools(self) -> Pools:
        return Pools(client=self.client)

    def class_of(self, box: Sandbox) -> str | None:
        return pod_of(self.stack, box)["spec"].get("runtimeClassName")

    def classes(self, pool: str) -> set[str | None]:
        """The runtime classes of the pool's pods that do not end."""
        listed = self.stack.get("pods", "-n", self.stack.sandboxes, "-l", f"sandlot.dev/pool={pool}")["items"]
        alive = [pod for pod in listed if "deletionTimestamp" not in pod["metadata"]]
        return {pod["spec"].get("runtimeClassName") for pod in alive}

    def told(self, pool: str) -> PoolInfo:
        return next(each for each in self.pools.list() if each.name == pool)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with release_of_its_own("classes", runtime="gvisor") as stack:
        plain, missing = f"{stack.release}-plain", f"{stack.release}-missing"
        of_runc = {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": plain},
            "handler": "runc",
        }
        stack.kubectl("apply", "-f", "-", stdin=json.dumps(of_runc))
        values = {
            "gateway.runtimeClasses": [plain, missing],
            "gateway.udp": {"first": PORT, "ports": 1},
            "gateway.replicas": 1,
            "controller.replicas": 1,
            "defaultPool.enabled": False,
            "pools": {},
        }
        words = ",".join(f"{name}={json.dumps(value)}" for name, value in values.items())
        try:
            stack.install("--set-json", words)
            with Client(url=stack.url, api_key=stack.api_key) as client:
                yield Site(stack, client, plain, missing)
        finally:
            stack.kubectl("delete", "runtimeclass", plain)


def ask(address: tuple[str, int], payload: bytes, *, link: socket.socket) -> tuple[bytes, bytes]:
    """Send until it is answered, since UDP may lose it; return the port that the sandbox saw, and the rest."""

    def answered() -> tuple[bytes, bytes] | None:
        link.sendto(payload, address)
        try:
            port, _, rest = link.recv(65535).partition(b" ")
        except TimeoutError:
            return None
        return (port, rest) if rest == payload[::-1] else None  # else it is the answer of an earlier one

    return until(answered)  # type: ignore[return-value]


@pytest.mark.parametrize("is_plain", [False, True], ids=["own_kernel", "plain"])
def test_a_udp_port_of_a_sandbox_is_reached_through_the_gateways_service(site: Site, is_plain: bool) -> None:
    name, wanted = ("udp-plain", site.plain) if is_plain else ("udp", "gvisor")
    site.pools.set(name, size=1, image=IMAGE, **SIZE, runtime_class=site.plain if is_plain else None)
    try:
        with Sandbox.create(IMAGE, client=site.client, pool=name, wait=180) as box:
            assert site.class_of(box) == wanted
            box.start(["python3", "-c", ECHO, str(IN_BOX)], detach=True)
            until(lambda: box.exec("test -e /tmp/ready", timeout=30).ok)
            host, _, port = box.expose(IN_BOX, protocol="udp").rpartition(":")
            assert port == str(PORT)
            seen: set[bytes] = set()
            for _ in range(2):
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
                    link.settimeout(1)
                    # One that fits a packet, one that does not, and an empty one.
                    ports = {ask((host, PORT), body, link=link)[0] for body in (b"ab", bytes(9000), b"")}
                    assert len(ports) == 1, "a client keeps its port in the sandbox"
                    seen |= ports
            assert len(seen) == 2, "clients are told apart"
            box.unexpose(IN_BOX)
            assert box.exposures() == []
    finally:
        site.pools.delete(name)


def test_a_request_changes_a_pools_runtime_class_and_replaces_its_pods(site: Site) -> None:
    pools = site.pools
    with pytest.raises(BadRequest) as refused:
        pools.set("changed", size=1, image=IMAGE, **SIZE, runtime_class="runc")
    assert refused.value.field == "runtime_class"
    made = pools.set("changed", size=1, image=IMAGE, **SIZE)
    assert made.runtime_class is None
    try:
        pools.wait_warm("changed")
        assert site.classes("changed") == {"gvisor"}
        assert pools.set("changed", runtime_class=site.plain).runtime_class == site.plain
        until(lambda: site.classes("changed") == {site.plain})
        pools.wait_warm("changed")
        with Sandbox.create(IMAGE, client=site.client, pool="changed", wait=180) as box:
            assert site.class_of(box) == site.plain
        pools.set("changed", runtime_class=site.missing)
        message = until(lambda: (told := site.told("changed")).failures and told.message)
        assert site.missing in str(message)
        pools.set("changed", runtime_class="")
        until(lambda: site.classes("changed") == {"gvisor"})
    finally:
        pools.delete("changed")
