"""Interfaces through which the data plane finds sandboxes and API keys; the gateway's directory implements them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from ..core.runs import RunId


@dataclass(slots=True)
class Route:
    """The address, credential and status of one sandbox."""

    sandbox_id: SandboxId
    tenant: str
    address: str  # "unix:/path" or "host:port" ("[::1]:8700" for IPv6); never taken from a client
    token: str = field(repr=False)  # the sidecar's sandbox token
    status: Status
    verdict: str | None = None  # of its end
    message: str | None = None
    run: RunId | None = None  # with whose lease it ends


class Routes(Protocol):
    """Called in the event loop's thread; `find` and `touched` once per request, so they must be cheap."""

    def find(self, sandbox_id: SandboxId) -> Route | None:
        """Return the route, also for a while after the sandbox's end (with status and verdict); None if unknown."""
        ...

    async def wait_ready(self, sandbox_id: SandboxId, timeout: float) -> Route | None:
        """Wait up to `timeout` seconds while the sandbox is PENDING, and return its route as it is then.

        An unknown sandbox may get a moment to become known.
        """
        ...

    def may_come(self, sandbox_id: SandboxId) -> bool:
        """Return whether another gateway may have a sandbox that is unknown after this wait."""
        ...

    def touched(self, sandbox_id: SandboxId) -> None:
        """Record a request for this sandbox."""


class ApiKeys(Protocol):
    def tenant(self, key: str) -> str | None:
        """Return the tenant that owns an API key, or None; compares in constant time."""
        ...
