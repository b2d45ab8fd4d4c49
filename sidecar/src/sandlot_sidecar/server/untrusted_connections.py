"""Connections that have shown no token: limits on their number and age, by origin.

User code can reach the port, too. Connections from the sandbox's network are its code's, since gateways are elsewhere,
so these cannot crowd out a gateway's, however many there are.
"""

from __future__ import annotations

from collections import OrderedDict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Connection(Protocol):
        """A connection that can be closed; `inside`: it comes from the sandbox's network."""

        inside: bool

        def abort(self) -> None: ...


MOST_OUTSIDE = 256
MOST_INSIDE = 32
# Seconds. Outside: longer than a gateway keeps an unused connection (its idle timeout plus a quarter).
STAY_OUTSIDE = 90.0
STAY_INSIDE = 5.0


class UntrustedConnections:
    """All untrusted connections, oldest first; beyond the limit the oldest is closed."""

    def __init__(self) -> None:
        self._outside: OrderedDict[Connection, None] = OrderedDict()
        self._inside: OrderedDict[Connection, None] = OrderedDict()

    def add(self, connection: Connection) -> None:
        """Add a connection, and close the oldest of its origin beyond the limit."""
        kind, most = (self._inside, MOST_INSIDE) if connection.inside else (self._outside, MOST_OUTSIDE)
        kind[connection] = None
        if len(kind) > most:
            oldest, _ = kind.popitem(last=False)
            oldest.abort()

    def remove(self, connection: Connection) -> None:
        """Remove a connection that has shown a token or is closed."""
        self._inside.pop(connection, None)
        self._outside.pop(connection, None)


def stay(inside: bool) -> float:
    """Return the seconds after which a connection without a token is closed."""
    return STAY_INSIDE if inside else STAY_OUTSIDE


def is_inside(transport: Any) -> bool:
    """Return whether the peer is in the sandbox's network; a Unix socket is not among the sandbox's files."""
    peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    if isinstance(own, str):
        return False
    if not peer or not own:  # already closed
        return True
    return peer[0] == own[0] or _is_local(peer[0]) or _is_local(own[0])


def _is_local(address: str) -> bool:
    return address == "::1" or address.removeprefix("::ffff:").startswith(("127.", "fe80:"))
