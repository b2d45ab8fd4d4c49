"""A server for the stub sidecars of any number of pods, on one port of all of loopback; the token selects the pod."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Any
from weakref import WeakValueDictionary

import httptools
from sandlot_contract.headers import OP, VERDICT
from sandlot_contract.ids import InstanceId
from sandlot_contract.ports import SIDECAR_PORT
from sandlot_gateway.tokens import Tokens
from sandlot_sidecar.core.ends import End
from sandlot_sidecar.core.errors import ApiError
from sandlot_sidecar.server.tasks import Tasks

from loadtests.cluster.stub_commands import Ended, StubCommands
from loadtests.cluster.stub_sidecar import StubSidecar


class StubPods:
    """Serves many sidecars, and the commands of their sandboxes. `asked` maps each name to the wall-clock time of its first
    probe.
    """

    def __init__(
        self,
        *,
        master: bytes,
        exited: Callable[[str], None] = lambda pod: None,
        gateway: str | None = None,
        serves: Callable[[str], bool] = lambda address: True,
    ) -> None:
        """Call `exited` with the name of each pod whose sidecar has ended.

        `gateway`: the URL of webhooks; None: none. `serves`: whether the pod of an address is not another process's.
        """
        self._exited = exited
        self._gateway = gateway
        self._serves = serves
        self.asked: dict[str, float] = {}
        self.commands = StubCommands()
        self._tokens = Tokens(master)
        self._sidecars: dict[str, StubSidecar] = {}  # by token
        self._owned: dict[str, StubSidecar] = {}  # by the token of its owner, also of one that has ended
        self._former = WeakValueDictionary[str, StubSidecar]()  # by the token of the owner before
        self._closing = Tasks()  # sidecars whose pods are deleted

    def know(self, name: InstanceId, *, template: str) -> None:
        """Add an unowned pod of this name, which has the template with this key."""
        token = self._tokens.instance(name)
        if token not in self._sidecars:
            self._sidecars[token] = StubSidecar(
                name,
                token,
                template=template,
                commands=self.commands,
                gateway=self._gateway,
                opened=self._owned.__setitem__,
                closed=self._closed,
                exited=self._exited,
            )

    def ready(self, name: InstanceId, address: str) -> None:
        """Let a pod's sidecar tell the gateway that it is ready, if it has not yet."""
        sidecar = self._sidecars.get(self._tokens.instance(name))
        if sidecar is not None and self._serves(address):
            sidecar.ready(address)

    def forget(self, name: InstanceId) -> None:
        """Answer nothing for a pod that is gone."""
        sidecar = self._sidecars.pop(self._tokens.instance(name), None)
        if sidecar is not None:
            sidecar.forget()
            self._closing.spawn(sidecar.close())

    def owned(self) -> list[str]:
        """Return the pods that have an owner."""
        return [each.name for each in self._owned.values() if each.owner is not None]

    def pod_of(self, sandbox_id: str) -> str:
        """Return the pod of a sandbox that has not ended. Raises KeyError."""
        for each in self._owned.values():
            if each.owner == sandbox_id:
                return each.name
        raise KeyError(sandbox_id)

    def ended(self, name: InstanceId, *, verdict: str) -> dict[str, Any]:
        """End a pod's sidecar as if by itself; return its last state."""
        sidecar = self._sidecars[self._tokens.instance(name)]
        sidecar.end(End(verdict, None))
        return sidecar.state()

    @asynccontextmanager
    async def listening(self, port: int = SIDECAR_PORT, *, host: str = "0.0.0.0") -> AsyncIterator[None]:
        """Listen; on all addresses only in a network namespace of its own. Raises OSError if the port is in use.

        Each connection is an open file: a program with thousands of pods calls `raise_limit` first.
        """
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # A socket for each address would double the number of descriptors.
        sock.bind((host, port))
        connections: set[_Connection] = set()
        loop = asyncio.get_running_loop()
        # A cancellation while it starts to serve would leave the socket open.
        server = await loop.create_server(
            lambda: _Connection(self, connections), sock=sock, backlog=4096, start_serving=False
        )
        try:
            await server.start_serving()
            yield
        finally:
            server.close()
            for connection in list(connections):
                connection.transport.abort()
            await asyncio.gather(*(each.close() for each in self._sidecars.values()))
            await self._closing.wait()

    def asked_one(self, method: bytes, route: bytes, *, token: str) -> StubSidecar:
        """Return the sidecar that a request with this token is for, if it may ask that. Raises ApiError."""
        sidecar = self._sidecars.get(token)
        if sidecar is not None and route == b"/v1/state":
            self.asked.setdefault(sidecar.name, time.time())
        sidecar = sidecar or self._owned.get(token) or self._former.get(token)
        if sidecar is None:
            # It may be of a pod that the watch has not told yet.
            raise ApiError(503, "starting", "no pod here has this token")
        sidecar.authorize(method, route, token=token)
        return sidecar

    def _closed(self, token: str) -> None:
        if (sidecar := self._owned.pop(token, None)) is not None:
            if sidecar.former is not None:
                self._former.pop(sidecar.former, None)
            self._former[token], sidecar.former = sidecar, token


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, pods: StubPods, connections: set[_Connection]) -> None:
        self._pods = pods
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._path = self._token = self._body = self._op = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._pods.commands.left(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.close()

    def on_url(self, url: bytes) -> None:
        self._path = url
        self._body = self._op = b""  # an op's id is of its request, not of the connection

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"authorization":
            self._token = value.removeprefix(b"Bearer ")
        elif name.lower() == b"x-sandlot-op":
            self._op = value

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        method = self._parser.get_method()
        route, _, _ = self._path.partition(b"?")
        try:
            sidecar = self._pods.asked_one(method, route, token=self._token.decode())
            if (method, route) == (b"POST", b"/v1/exec"):
                self._exec(sidecar)
            else:
                self._answer(200, json.dumps(sidecar.answer(method, self._path, self._body)).encode())
        except ApiError as error:
            self._answer(error.status, json.dumps(error.body()).encode(), *error.headers)

    def _exec(self, sidecar: StubSidecar) -> None:
        self._pods.commands.run(
            self._op.decode() or token_hex(16),
            self._body,
            sandbox=sidecar.use(),
            connection=self,
            answer=self._ended,
        )

    def _ended(self, end: Ended) -> None:
        # The gateway counts by the verdict in the header, and reads no bodies.
        self._answer(200, end.body(), (OP, end.op), (VERDICT, end.verdict))

    def _answer(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        more = "".join(f"{name}: {value}\r\n" for name, value in headers)
        head = f"HTTP/1.1 {status} x\r\ncontent-type: application/json\r\n{more}content-length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)
