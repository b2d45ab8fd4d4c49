"""A stub for the node agents of any number of nodes, on one port of all of loopback; the address selects the node."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from sandlot_contract.names import APP, COMPONENT_NODE_AGENT, LABEL_COMPONENT, LABEL_NAME
from sandlot_contract.ports import NODE_AGENT_PORT
from sandlot_kube import paths
from sandlot_kube.client import MERGE_PATCH, KubeClient

from loadtests.cluster.control_plane import AT_ONCE
from loadtests.placement.node_images import Nodes


class StubAgents:
    """Serves which images `nodes` have. A pull takes `pull` seconds. An image's id is its name."""

    def __init__(self, nodes: Nodes, *, pull: float) -> None:
        self._nodes = nodes
        self._pull = pull
        self.unlisted = set(nodes.images)  # nodes whose images no gateway has asked for
        self._at = {_address(number): node for number, node in enumerate(nodes.images)}

    async def make_pods(self, client: KubeClient, namespace: str) -> None:
        """Create the agents' pods as if they ran: before kwok, which would choose their addresses."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def make(address: str, node: str) -> None:
            name = f"agent-{node}"
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "labels": {LABEL_NAME: APP, LABEL_COMPONENT: COMPONENT_NODE_AGENT},
                },
                "spec": {"nodeName": node, "containers": [{"name": "agent", "image": "node-agent"}]},
            }
            status = {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}
            async with gate:
                await client.request("POST", paths.pods(namespace), body=body)
                where = f"{paths.pods(namespace, name)}/status"
                await client.request("PATCH", where, body=status, content_type=MERGE_PATCH)

        async with asyncio.TaskGroup() as group:
            for address, node in self._at.items():
                group.create_task(make(address, node))

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Listen on all addresses, in a network namespace of its own."""
        open_ones: set[asyncio.StreamWriter] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            open_ones.add(writer)
            node = self._at[writer.get_extra_info("sockname")[0]]
            try:
                while True:
                    method, target, body = await _request(reader)
                    status, told = await self._answer(node, method, target, body)
                    text = json.dumps(told).encode()
                    head = f"HTTP/1.1 {status} x\r\ncontent-type: application/json\r\n"
                    writer.write(f"{head}content-length: {len(text)}\r\n\r\n".encode() + text)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                open_ones.discard(writer)
                writer.close()

        server = await asyncio.start_server(serve, "0.0.0.0", NODE_AGENT_PORT, backlog=4096)
        try:
            yield
        finally:
            server.close()
            for writer in list(open_ones):
                writer.transport.abort()

    async def _answer(
        self, node: str, method: str, target: str, body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        url = urlsplit(target)
        match [method, *(unquote(part) for part in url.path.split("/")[2:])]:
            case ["GET", "images"]:
                self.unlisted.discard(node)
                return 200, {"images": [_image(name) for name in self._nodes.images[node]]}
            case ["POST", "images"]:
                left = self._nodes.prepare(node, body["image"], now=time.monotonic(), pull=self._pull)
                query = parse_qs(url.query)
                if not left and "slot" in query:
                    self._nodes.use(node, body["image"], query["slot"][0])
                    return 200, {**_image(body["image"]), "since": time.time()}
                wait = float(query.get("wait", ["0"])[0])
                await asyncio.sleep(min(left, wait))
                if left > wait:
                    return 202, {"phase": "pulling", "done": 0, "total": None}
                return 200, _image(body["image"])
            case ["POST", "images", name, "uses"]:
                if name not in self._nodes.images[node]:
                    return 404, {"code": "not_found", "detail": f"{node} does not have {name}"}
                self._nodes.use(node, name, body["slot"])
                return 200, {**_image(name), "since": time.time()}
            case ["DELETE", "images", name, "uses", slot]:
                if name in self._nodes.images[node]:
                    self._nodes.unuse(node, name, slot)
                return 204, {}
            case _:
                return 404, {"code": "failed", "detail": f"no such route: {method} {target}"}


async def _request(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, Any]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *headers = head.split("\r\n")
    method, target, _ = first.split(" ")
    fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in headers)}
    body = await reader.readexactly(int(fields.get("content-length", "0")))
    return method, target, json.loads(body) if body else {}


def _image(name: str) -> dict[str, Any]:
    return {"id": name, "rootfs": f"/var/lib/sandlot/images/{name}/rootfs", "names": [name]}


def _address(number: int) -> str:
    return f"127.8.{number >> 8}.{number & 255}"
