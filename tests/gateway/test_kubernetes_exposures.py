"""Exposures with two gateways over one API server: what one has made the other one serves, lists and takes away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import Any

import pytest
from sandlot_kube import paths

from tests import plain_http
from tests.gateway.kubernetes_world import NEEDS_API_SERVER, TEMPLATE, Running, World
from tests.ports import free_port, free_ports
from tests.waiting import SECONDS, until

pytestmark = NEEDS_API_SERVER

PORT = free_port()  # of this process alone: sandboxes on one machine share its network
SERVE = (
    "nohup python3 -c \"import socketserver, sys; h = type('H', (socketserver.StreamRequestHandler,), {'handle':"
    " lambda self: (self.rfile.readline(), self.wfile.write(b'HTTP/1.0 200 OK\\r\\n\\r\\nhello'))});"
    " socketserver.TCPServer.allow_reuse_address = True;"
    f" socketserver.TCPServer(('127.0.0.1', {PORT}), h).serve_forever()\" >/dev/null 2>&1 &"
)
SERVE_UDP = (
    'nohup python3 -c "import socket; s = socket.socket(type=socket.SOCK_DGRAM);'
    f" s.bind(('127.0.0.1', {PORT}))\nwhile True: s.sendto(*s.recvfrom(100))\" >/dev/null 2>&1 &"
)


async def sandbox(world: World, gateway: Running) -> str:
    await world.kubelet.pod(TEMPLATE, pool="default")
    await gateway.warm()
    return (await gateway.made())["id"]


async def expose(gateway: Running, sandbox_id: str, **fields: Any) -> dict[str, Any]:
    answer = await gateway.client.post(
        f"/api/v1/sandbox/{sandbox_id}/expose", json={"port": PORT, "name": "web", **fields}
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


async def listed(gateway: Running, sandbox_id: str) -> list[dict[str, Any]]:
    return (await gateway.client.get(f"/api/v1/sandbox/{sandbox_id}/expose")).json()["exposures"]


def port_range(count: int) -> str:
    ports = free_ports(count)
    return f"{ports[0]}-{ports[-1]}"


async def test_every_gateway_serves_and_lists_what_one_has_exposed(world: World) -> None:
    async with world.gateway("a") as one, world.gateway("b") as other:
        box = await sandbox(world, one)
        await one.run(box, SERVE)
        made = await expose(one, box)
        path = f"/expose/{made['exposure_id']}/"
        async with asyncio.timeout(SECONDS), plain_http.async_client() as browser:
            for gateway in (other, one):
                answer = await browser.get(gateway.url + path)
                while answer.status_code == 502:  # until the server in there listens
                    answer = await browser.get(gateway.url + path)
                assert (answer.status_code, answer.text) == (200, "hello")
        assert [each["exposure_id"] for each in await listed(other, box)] == [made["exposure_id"]]
        resource = world.server.call("GET", paths.sandboxes(world.namespace, box))
        assert made["exposure_id"] not in json.dumps(resource), "its id opens it"

        gone = await other.client.delete(f"/api/v1/sandbox/{box}/expose/{made['exposure_id']}")
        assert gone.status_code == 200, gone.text
        await until(lambda: one.gateway.exposures.find(made["exposure_id"]) is None)
        for gateway in (one, other):
            assert (await gateway.client.get(path)).status_code == 404
            assert await listed(gateway, box) == []


async def test_a_new_gateway_knows_the_exposures_of_an_earlier_one(world: World) -> None:
    async with world.gateway("a") as one:
        box = await sandbox(world, one)
        made = await expose(one, box)
    async with world.gateway("b") as other:
        [found] = await listed(other, box)
        assert {**found, "url": ""} == {**made, "url": "", "tls_socket": found["tls_socket"]}
        assert found["url"] == f"{other.url}/expose/{made['exposure_id']}/"
        await other.client.delete(f"/api/v1/sandbox/{box}")
        await until(lambda: other.gateway.exposures.find(made["exposure_id"]) is None)


async def test_an_id_that_no_gateway_made_is_refused_without_a_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandlot_gateway.data.expose._PATIENCE", 600.0)
    async with world.gateway("a") as gateway:
        for unknown in ("0" * 40, "x", "%ff"):
            async with asyncio.timeout(60):
                assert (await gateway.client.get(f"/expose/{unknown}/")).status_code == 404


async def test_tcp_ports_are_told_apart_by_all_gateways(world: World) -> None:
    """Two of them give away the last two ports at the same moment, again and again."""
    async with (
        world.gateway("a", tcp_ports=port_range(2), host="127.0.0.2") as one,
        world.gateway("b", tcp_ports=one.gateway.settings.tcp_ports, host="127.0.0.3") as other,
    ):
        boxes = [await sandbox(world, one), await sandbox(world, one)]
        for gateway in (one, other):
            for box in boxes:
                await gateway.get(box)
        for _ in range(5):
            made = await asyncio.gather(
                *(
                    gateway.client.post(
                        f"/api/v1/sandbox/{box}/expose", json={"port": PORT, "protocol": "TCP"}
                    )
                    for gateway, box in zip((one, other), boxes, strict=True)
                )
            )
            ports = [answer.json()["external_port"] for answer in made if answer.status_code == 200]
            assert len(set(ports)) == len(ports)
            for answer, gateway, box in zip(made, (one, other), boxes, strict=True):
                if answer.status_code == 200:
                    exposure_id = answer.json()["exposure_id"]
                    await gateway.client.delete(f"/api/v1/sandbox/{box}/expose/{exposure_id}")
                else:
                    assert answer.status_code == 409
            for gateway in (one, other):
                await until(lambda gateway=gateway: not gateway.gateway.exposures.list("alpha"))


async def test_udp_is_served_by_every_gateway(world: World) -> None:
    async with (
        world.gateway("a", udp_ports=port_range(2), host="127.0.0.2") as one,
        world.gateway("b", udp_ports=one.gateway.settings.udp_ports, host="127.0.0.3") as other,
    ):
        box = await sandbox(world, one)
        await one.run(box, SERVE_UDP)
        made = await expose(one, box, protocol="UDP")
        assert made["url"] == f"udp://{made['external_endpoint']}"
        await other.gateway.exposures.found(made["exposure_id"])
        for host in ("127.0.0.2", "127.0.0.3"):
            with socket.socket(type=socket.SOCK_DGRAM) as client:
                client.setblocking(False)
                client.connect((host, made["external_port"]))
                await until(lambda client=client: answers(client))


async def answers(client: socket.socket) -> bool:
    """Return whether an answer came: the server in there, or this gateway's port, may not be open yet."""
    with contextlib.suppress(ConnectionRefusedError, TimeoutError):
        client.send(b"hello")
        async with asyncio.timeout(0.2):
            return await asyncio.get_running_loop().sock_recv(client, 100) == b"hello"
    return False


async def test_without_ports_tcp_and_udp_are_refused(world: World) -> None:
    async with world.gateway("a") as gateway:
        box = await sandbox(world, gateway)
        for protocol in ("TCP", "UDP"):
            answer = await gateway.client.post(
                f"/api/v1/sandbox/{box}/expose", json={"port": PORT, "protocol": protocol}
            )
            assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, "protocol")
