"""Errors of requests to an upstream, distinguished by whether the request may have run."""

from __future__ import annotations

from typing import Literal

# State of an upstream that accepted no connection. slow: alive but behind. silent: no sign of life. refusing: its
# machine is up and nothing listens. ended: the backend has reported its end.
Peer = Literal["slow", "silent", "refusing", "ended", "unknown"]


class PoolError(Exception):
    """Base of the HTTP pool's errors."""

    may_have_run = False


class DialError(PoolError):
    """Raised when no connection could be made: nothing of the request was sent, so a retry is safe."""

    def __init__(
        self,
        address: str,
        reason: str,
        *,
        refused: bool = False,
        nothing_listens: bool = False,
        final: bool = False,
        tls: bool = False,
        peer: Peer | None = None,
    ) -> None:
        super().__init__(f"cannot connect to {address}: {reason}")
        self.address = address
        self.reason = reason
        self.refused = refused  # its machine is up, and nothing there takes the connection
        self.nothing_listens = nothing_listens  # the kernel says so
        self.final = final  # a retry cannot succeed
        self.tls = tls  # we refuse each other's certificates: another gateway may reach it
        self.peer: Peer = peer or ("refusing" if refused else "unknown")


class UpstreamError(PoolError):
    """Raised when the upstream failed after the request was (or may have been) sent: a retry could run it twice."""

    may_have_run = True


class ClientGone(Exception):
    """Raised when the client has disconnected."""


class WireError(Exception):
    """Raised for bytes that are not a valid HTTP/1.1 response."""
