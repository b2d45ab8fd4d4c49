"""One client's session: with which server and key its tools work, and which sandboxes are its own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from sandlot._async.client import AsyncClient
from sandlot._async.plane import AsyncPlane
from sandlot._async.sandbox import AsyncSandbox
from sandlot.errors import SandlotError
from sandlot.models import SandboxInfo

MADE_HERE = "mcp"  # the label of all sandboxes that were created by these tools
BUSY_FOR = 10.0  # seconds that a busy server is asked again; then the model decides what to do
_END_SECONDS = 30.0
_writers: WeakValueDictionary[tuple[str, str, str], asyncio.Lock] = WeakValueDictionary()


@dataclass(kw_only=True)
class Session:
    """`id` is None for a client without sessions, whose sandboxes live until their timeouts; `client` is for it alone."""

    client: AsyncClient
    owner: str = ""  # its tenant, of a server with several
    id: str | None = None
    image: str | None = None  # of creates that name none
    run: str | None = None  # the training run of creates; None: the environment's
    origin: tuple[str, str] = (
        "",
        "",
    )  # a prefix of addresses that the server tells, and what its clients use in its place
    used: bool = field(default=False, init=False)  # it may have sandboxes

    def __post_init__(self) -> None:
        self.client.busy_for = BUSY_FOR

    @property
    def labels(self) -> list[str]:
        """Return the labels of its sandboxes."""
        return [MADE_HERE] if self.id is None else [MADE_HERE, f"mcp-session:{self.id}"]

    def sandbox(self, sandbox_id: str) -> AsyncSandbox:
        """Return a handle on a sandbox, without a request."""
        return AsyncSandbox(client=self.client, info=SandboxInfo(_id(sandbox_id)))

    def plane(self, sandbox_id: str) -> AsyncPlane:
        return AsyncPlane(client=self.client, sandbox_id=_id(sandbox_id))

    def told(self, address: str) -> str:
        """Return an address as this session's client can reach it."""
        own, outside = self.origin
        return outside + address.removeprefix(own) if own and address.startswith(f"{own}/") else address

    async def end(self) -> None:
        """Delete the session's sandboxes. Raises SandlotError if one stays."""
        if self.id is None:
            return
        async with asyncio.timeout(_END_SECONDS):
            done = await AsyncSandbox.delete_many(labels=self.labels, client=self.client)
        if done.failed:
            name, why = next(iter(done.failed.items()))
            raise SandlotError(f"{len(done.failed)} sandboxes of the session were not deleted; {name}: {why}")


def writer(owner: str, sandbox_id: str, op_id: str) -> asyncio.Lock:
    """Return the lock of a command's input: of two writes from one offset, the server takes one for a repeat and drops it.

    Other tenants, who may know its ids but not write to it, have another one.
    """
    return _writers.setdefault((owner, sandbox_id, op_id), asyncio.Lock())


def _id(sandbox_id: str) -> str:
    if not sandbox_id.isascii() or not all(letter.isalnum() or letter in "-_." for letter in sandbox_id):
        raise ValueError("sandbox_id: must be an id that create_sandbox or list_sandboxes returned")
    return sandbox_id
