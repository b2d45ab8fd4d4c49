"""What the data plane needs to know about sandboxes and keys; the gateway's directory implements it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status


@dataclass(slots=True)
class Route:
    """Where one sandbox is and how to speak to it."""

    sandbox_id: SandboxId
    tenant: str
    address: str  # "unix:/path" or "host:port" ("[::1]:8700" for IPv6); never taken from a client
    token: str = field(repr=False)  # the sidecar's sandbox token
    status: Status
    verdict: str | None = None  # why it ended, once it did
    message: str | None = None


class Routes(Protocol):
    """All methods are called in the event loop's thread; `find` and `touched` once per request, so must be cheap."""

    def find(self, sandbox_id: SandboxId) -> Route | None:
        """The sandbox's route, also for a while after its end (then with status and verdict); None: unknown."""
        ...

    async def wait_ready(self, sandbox_id: SandboxId, timeout: float) -> Route | None:
        """Wait up to `timeout` seconds while the sandbox is PENDING; the route as it is then.

        One that is unknown may get a moment to become known.
        """
        ...

    def may_come(self, sandbox_id: SandboxId) -> bool:
        """Whether one that is unknown after this wait may have been made elsewhere a moment ago."""
        ...

    def touched(self, sandbox_id: SandboxId) -> None:
        """A request for this sandbox arrived."""


class ApiKeys(Protocol):
    def tenant(self, key: str) -> str | None:
        """The tenant that owns an API key; None: no such key. Compares in constant time."""
        ...
