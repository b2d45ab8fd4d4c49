"""Proxy for sandboxes whose policy names hosts: reads a connection's host name, then connects it or rejects it.

The connection's original destination does not count: the proxy resolves the name itself, so that code cannot give
one name and reach another's server. Imported by the first policy with hosts.
"""

from __future__ import annotations

import asyncio
import functools
import socket

from .. import mark
from ..carrying import carry, close, reset
from . import asked_host
from .asked_host import Incomplete, NoHostName
from .body import PORTS
from .policy import Policy
from .resolver import Resolver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..nameservers import NameServers

MOST = 256  # connections at a time; further ones are closed
PATIENCE = 10.0  # seconds for a connection to give a name, and to connect to an address
ADDRESSES = 3  # addresses tried per name
LOOKUPS = 32  # lookups at a time
_PIECE = 64 << 10
_HTTP = PORTS[0]
# This host, loopback, link-local (with the clouds' metadata service), multicast and above: none is a remote host, and
# the sidecar may reach what the sandbox may not.
_NEVER = Policy(
    allow=False, rules=[[0, 8, 0, 0], [127 << 24, 8, 0, 0], [0xA9FE << 16, 16, 0, 0], [7 << 29, 3, 0, 0]]
)


class Refused(Exception):
    """The connection is rejected; the text is for its client."""

    def __init__(self, text: str, *, forbidden: bool) -> None:
        super().__init__(text)
        self.forbidden = forbidden  # by the policy; otherwise connecting failed


class Flow:
    """One proxied connection."""

    def __init__(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.port = port
        self.reader = reader
        self.writer = writer
        self.name = ""
        self.address: int | None = None  # None until the name is resolved
        self.task: asyncio.Task[None] | None = None


class Proxy:
    """Listens on one loopback address, with a port for each port in the policy's host rules."""

    def __init__(self, address: str, *, names: NameServers) -> None:
        self._address = address
        self._policy: Policy | None = None
        self._servers: dict[int, asyncio.Server] = {}
        self._flows: set[Flow] = set()
        self._lookups = asyncio.Semaphore(LOOKUPS)
        self._resolver = Resolver(names)

    async def listen(self, ports: list[int]) -> dict[int, int]:
        """Listen for these ports too; return the proxy's port for each. Raises OSError."""
        for port in ports:
            if port not in self._servers:
                sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                try:
                    mark.put_on(sock)
                    sock.bind((self._address, 0))
                    accept = functools.partial(self._accept, port)
                    self._servers[port] = await asyncio.start_server(accept, sock=sock, limit=_PIECE)
                except BaseException:
                    sock.close()
                    raise
        return {port: self._servers[port].sockets[0].getsockname()[1] for port in ports}

    def follow(self, policy: Policy) -> None:
        """Switch to a policy and cut the connections that it does not let through."""
        self._policy = policy
        for port in [port for port in self._servers if port not in policy.ports]:
            self._servers.pop(port).close()
        for flow in self._flows:
            if flow.name and not self._lets(flow):
                _cut(flow)

    def close(self) -> None:
        """Stop listening and cut all connections."""
        self.follow(Policy(allow=True, rules=[]))
        self.cut()

    def cut(self) -> None:
        """Cut all connections."""
        for flow in self._flows:
            _cut(flow)

    def _accept(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._flows) >= MOST:
            writer.transport.abort()
            return
        flow = Flow(port, reader, writer)
        self._flows.add(flow)
        flow.task = asyncio.get_running_loop().create_task(self._serve(flow))

    async def _serve(self, flow: Flow) -> None:
        try:
            try:
                first, reader, writer = await self._lead(flow)
            except Refused as refused:
                await _refuse(flow, refused)
                return
            writer.write(first)
            await carry((flow.reader, flow.writer), (reader, writer))
        except (OSError, EOFError):
            return  # one end has disconnected, or sent nothing
        finally:
            reset(flow.writer)
            self._flows.discard(flow)

    async def _lead(self, flow: Flow) -> tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]:
        """Return what the client has sent, and the connection to its host. Raises Refused, OSError and EOFError."""
        async with asyncio.timeout(PATIENCE):
            first = await self._read_name(flow)
        forbidden = Refused(f"the sandbox's egress policy does not let {flow.name} through", forbidden=True)
        if not self._lets(flow):
            raise forbidden
        try:
            async with asyncio.timeout(PATIENCE), self._lookups:
                told = await self._resolver.addresses(flow.name)
        except (OSError, ValueError) as error:
            text = f"cannot resolve {flow.name}: {error or 'no name server answered in time'}"
            raise Refused(text, forbidden=False) from error
        failure: OSError | None = None
        for text in list(dict.fromkeys(told))[:ADDRESSES]:
            flow.address = int.from_bytes(socket.inet_aton(text), "big")
            if not self._lets(flow):
                forbidden = Refused(
                    f"the sandbox's egress policy lets {flow.name} through, but not its address {text}: "
                    "allow the address, too, if you mean it",
                    forbidden=True,
                )
                continue
            try:
                return first, *await _connect(text, flow.port)
            except OSError as error:
                failure = error
        if failure is not None:
            raise Refused(f"cannot connect to {flow.name}: {failure or 'it did not answer'}", forbidden=False)
        raise forbidden

    async def _read_name(self, flow: Flow) -> bytes:
        asked = asked_host.Head() if flow.port == _HTTP else asked_host.Hello()
        while more := await flow.reader.read(_PIECE):
            try:
                flow.name = asked.feed(more)
                return bytes(asked.said)
            except Incomplete:
                if len(asked.said) >= asked_host.MOST:
                    raise Refused(
                        "the connection does not name its host",
                        forbidden=True,
                    ) from None
            except NoHostName as error:
                raise Refused(
                    f"cannot read a host name for the sandbox's egress policy: {error}",
                    forbidden=True,
                ) from error
        raise EOFError

    def _lets(self, flow: Flow) -> bool:
        """Return whether the policy lets the connection through, by what is known so far."""
        policy, address, port = self._policy, flow.address, flow.port
        if policy is None or not policy.lets_name(flow.name, port):
            return False
        return address is None or (
            policy.lets_address(address, port) and not _NEVER.has_address(address, port)
        )


async def _connect(address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(PATIENCE):
        sock = await mark.connect(address, port)
    return await asyncio.open_connection(sock=sock, limit=_PIECE)


def _cut(flow: Flow) -> None:
    if flow.task is not None:
        flow.task.cancel()


async def _refuse(flow: Flow, refused: Refused) -> None:
    flow.writer.write(_answer(refused, port=flow.port))
    flow.writer.write_eof()
    # Closing with unread data resets the connection, and a client that is still sending would lose the response.
    async with asyncio.timeout(PATIENCE):
        while await flow.reader.read(_PIECE):
            pass
    await close(flow.writer)


def _answer(refused: Refused, *, port: int) -> bytes:
    """Return the rejection in the client's protocol: HTTP, or a TLS alert (access_denied, internal_error)."""
    if port != _HTTP:
        return bytes([21, 3, 3, 0, 2, 2, 49 if refused.forbidden else 80])
    body = f"sandlot: {refused}\n".encode()
    status = "403 Forbidden" if refused.forbidden else "502 Bad Gateway"
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
