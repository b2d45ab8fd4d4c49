"""The interface of what the data plane serves besides its own routes, and knows nothing else of."""

from __future__ import annotations

from typing import Protocol

from .answers import Receive, Scope, Send
from .routes import Route

# In the scope of a request at a host name of its own: the Host that it is for. Its path is then below APP_BASE, so that
# no path of an app is taken for one of the gateway's; only the host name sets the key.
APP = "sandlot.app"
APP_BASE = "/e2b-app"


class Session(Protocol):
    """A WebSocket: `begin` connects and raises Refusal, `run` carries messages until either side closes."""

    async def begin(self) -> None: ...

    async def run(self, receive: Receive, send: Send) -> None: ...

    def close(self) -> None: ...


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

    async def socket(self, scope: Scope) -> tuple[Route, Session]:
        """Return what serves a WebSocket at one of its host names, and whose it is. Raises Refusal."""
        ...
