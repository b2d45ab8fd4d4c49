"""The ways a request to an upstream can fail, told apart by whether the request may have run."""

from __future__ import annotations

from typing import Literal

# What is known of an upstream that gave no connection: it lives and is behind; nothing was heard of it; its machine
# lives and nothing listens; the backend says that it has ended.
Peer = Literal["slow", "silent", "refusing", "ended", "unknown"]


class PoolError(Exception):
    """Base of what the HTTP pool raises."""

    may_have_run = False


class DialError(PoolError):
    """No connection could be made: nothing of the request was sent, so that a retry is safe."""

    def __init__(
        self,
        address: str,
        reason: str,
        *,
        refused: bool = False,
        final: bool = False,
        peer: Peer | None = None,
    ) -> None:
        super().__init__(f"cannot connect to {address}: {reason}")
        self.address = address
        self.reason = reason
        self.refused = refused  # its machine answered that nothing listens there
        self.final = final  # trying again would change nothing
        self.peer: Peer = peer or ("refusing" if refused else "unknown")


class UpstreamError(PoolError):
    """The upstream failed after the request was (or may have been) sent: a retry could run it twice."""

    may_have_run = True


class ClientGone(Exception):
    """Nobody is there to read the answer."""


class WireError(Exception):
    """Bytes that are no HTTP/1.1 response."""
