"""A stub for the sidecars of any number of pods, on one port of all of loopback; the token selects the pod."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Any
from urllib.parse import parse_qs

import httptools
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.ports import SIDECAR_PORT
from sandlot_gateway.tokens import Tokens

from loadtests.cluster.stub_commands import StubCommands

_NO_OWNER = {"sandbox_id": None, "meta": None, "claimed_at": None}
_PROOF = {"processes": [], "upper_entries": 0, "files_equal": True, "differences": []}


class StubPods:
    """Serves the state of many sidecars, and the commands of their sandboxes. `asked` maps each name to the wall-clock time
    of its first probe.
    """

    def __init__(self, *, master: bytes, exited: Callable[[str], None] = lambda pod: None) -> None:
        """Call `exited` with the name of each pod whose sidecar has ended."""
        self._exited = exited
        self.asked: dict[str, float] = {}
        self.commands = StubCommands()
        self._tokens = Tokens(master)
        self._states: dict[str, dict[str, Any]] = {}  # by token
        self._owned: dict[str, dict[str, Any]] = {}  # by the token of the sandbox that has it

    def know(self, name: InstanceId) -> None:
        """Add an unowned pod of this name."""
        state = {
            "instance_id": name,
            "address": None,
            "generation": 1,
            "phase": "warm",
            "bound_to": None,
            "uses": 0,
            "last": False,
            "notes": [],
        }
        self._states.setdefault(self._tokens.instance(name), state)

    def forget(self, name: InstanceId) -> None:
        """Answer nothing for a pod that is gone."""
        state = self._states.pop(self._tokens.instance(name), None)
        if state is not None and "sandbox_id" in state:
            self._leave(state)

    def owned(self) -> list[str]:
        """Return the pods that have an owner."""
        return [state["instance_id"] for state in self._owned.values()]

    def pod_of(self, sandbox_id: str) -> str:
        """Return the pod of a sandbox that has not ended. Raises KeyError."""
        for state in self._owned.values():
            if state["sandbox_id"] == sandbox_id:
                return state["instance_id"]
        raise KeyError(sandbox_id)

    def ended(self, name: InstanceId, *, verdict: str) -> dict[str, Any]:
        """Note that the pod's sidecar has ended by itself; return its last state."""
        state = self._states[self._tokens.instance(name)]
        self._leave(state)
        state |= {"phase": "ended", "verdict": verdict}
        return state

    @asynccontextmanager
    async def listening(self, port: int = SIDECAR_PORT) -> AsyncIterator[None]:
        """Listen on all addresses, in a network namespace of its own. Raises OSError if the port is in use."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # A socket for each address would double the number of descriptors.
        sock.bind(("0.0.0.0", port))
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

    def answer(self, method: bytes, path: bytes, *, token: str, body: bytes) -> tuple[int, dict[str, Any]]:
        state = self._states.get(token)
        if state is None:
            return 503, {"error": "starting"}
        route, _, query = path.partition(b"?")
        match method, route:
            case b"GET", b"/v1/commands":
                wanted = parse_qs(query.decode())
                if wanted["of"] != [state.get("sandbox_id")]:
                    return 409, {"error": "not_owner"}
                return 200, self.commands.listed(wanted["of"][0])
            case b"GET", b"/v1/state":
                self.asked.setdefault(state["instance_id"], time.time())
            case b"POST", b"/v1/claim":
                if state["phase"] != "warm":
                    return 409, {"error": "already_claimed"}
                claim = json.loads(body)
                told = {name: claim.get(name) for name in ("sandbox_id", "meta")}
                state |= {"phase": "claimed", "claimed_at": time.time(), **told}
                state |= {"bound_to": claim["tenant"], "uses": state["uses"] + 1}
                self._owned[self._sandbox_token(state)] = state
                if image := claim.get("image"):
                    state["image"] = image["id"]
            case b"POST", b"/v1/reset":
                generation = json.loads(body)["generation"]
                if generation != state["generation"]:
                    return 409, {"error": "stale_generation"}
                if state["last"]:
                    return 409, {"error": "last_generation"}
                self._leave(state)
                state |= {"phase": "warm", "generation": generation + 1, **_NO_OWNER}
                return 200, {"took_ms": 0.0, "proof": _PROOF, "equal": True, **state}
            case b"POST", b"/v1/end":
                wanted = json.loads(body)
                if wanted.get("only_unclaimed") and state["phase"] == "claimed":
                    state["last"] = state["last"] or wanted.get("after_owner", False)
                    return (200, state) if wanted.get("after_owner") else (409, {"error": "claimed"})
                if state["phase"] != "ended":
                    if "sandbox_id" in state:
                        self._leave(state)
                    state |= {"phase": "ended", "verdict": wanted["verdict"]}
                    self._exited(state["instance_id"])
            case _:
                return 404, {"error": "no_such_route"}
        return 200, state

    def sandbox(self, token: str) -> str | None:
        """Return the id of the sandbox that has not ended and has this token."""
        state = self._owned.get(token)
        return None if state is None else state["sandbox_id"]

    def _leave(self, state: dict[str, Any]) -> None:
        self._owned.pop(self._sandbox_token(state), None)
        self.commands.forget(str(state["sandbox_id"]))

    def _sandbox_token(self, state: dict[str, Any]) -> str:
        sandbox_id = SandboxId(str(state["sandbox_id"]))
        return self._tokens.sandbox(InstanceId(state["instance_id"]), state["generation"], sandbox_id)


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
        self._path, self._body, self._op = (
            url,
            b"",
            b"",
        )  # an op's id is of its request, not of the connection

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"authorization":
            self._token = value.removeprefix(b"Bearer ")
        elif name.lower() == b"x-sandlot-op":
            self._op = value

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        token = self._token.decode()
        if self._path == b"/v1/exec" and (sandbox := self._pods.sandbox(token)) is not None:
            self._pods.commands.run(
                self._op.decode() or token_hex(16),
                self._body,
                sandbox=sandbox,
                connection=self,
                answer=lambda body: self._answer(200, body),
            )
            return
        status, told = self._pods.answer(self._parser.get_method(), self._path, token=token, body=self._body)
        self._answer(status, json.dumps(told).encode())

    def _answer(self, status: int, body: bytes) -> None:
        head = b"HTTP/1.1 %d x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self.transport.write(head % (status, len(body)) + body)
