"""The interface of what the data plane serves besides its own routes, and knows nothing else of."""

from __future__ import annotations

from typing import Protocol

from .answers import Receive, Scope, Send


class Mounted(Protocol):
    def is_known(self, scope: Scope) -> bool:
        """Return whether a request is authenticated; otherwise its body is not buffered."""
        ...

    def start(self) -> None:
        """Begin what it does in the background."""
        ...

    async def close(self) -> None:
        """End what it does in the background."""
        ...

    async def http(
        self, scope: Scope, receive: Receive, send: Send, *, request_id: bytes
    ) -> tuple[int, bytes]:
        """Serve one request; return its status, and the verdict of a command or b"". Raises Refusal, ClientGone, Truncated."""
        ...
