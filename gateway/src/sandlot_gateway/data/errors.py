"""The ways a request to an upstream can fail, told apart by whether the request may have run."""

from __future__ import annotations


class PoolError(Exception):
    """Base of what the HTTP pool raises."""

    may_have_run = False


class DialError(PoolError):
    """No connection could be made: nothing of the request was sent, so that a retry is safe."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"cannot connect to {address}: {reason}")
        self.address = address
        self.reason = reason


class UpstreamError(PoolError):
    """The upstream failed after the request was (or may have been) sent: a retry could run it twice."""

    may_have_run = True


class WireError(Exception):
    """Bytes that are no HTTP/1.1 response."""
