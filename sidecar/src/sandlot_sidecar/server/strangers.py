"""Connections that have shown no token: how many there may be, how long they stay, and whose they are.

User code can reach the port too. What comes from the sandbox's own network is its code's, since gateways are elsewhere:
so however many connections that opens, none of a gateway's is closed for them.
"""

from __future__ import annotations

from collections import OrderedDict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Connection(Protocol):
        """One that can be closed; `inside`: it comes from the sandbox's own network."""

        inside: bool

        def abort(self) -> None: ...


MOST_OUTSIDE = 256
MOST_INSIDE = 32
# Seconds. From outside longer than a gateway keeps a connection that it has not used (its idle timeout and a quarter).
STAY_OUTSIDE = 90.0
STAY_INSIDE = 5.0


class Strangers:
    """All of them, the oldest first; whoever is too many goes."""

    def __init__(self) -> None:
        self._outside: OrderedDict[Connection, None] = OrderedDict()
        self._inside: OrderedDict[Connection, None] = OrderedDict()

    def add(self, connection: Connection) -> None:
        """A new connection: the oldest of its kind is closed where there are too many."""
        kind, most = (self._inside, MOST_INSIDE) if connection.inside else (self._outside, MOST_OUTSIDE)
        kind[connection] = None
        if len(kind) > most:
            oldest, _ = kind.popitem(last=False)
            oldest.abort()

    def remove(self, connection: Connection) -> None:
        """It has shown a token, or is closed."""
        self._inside.pop(connection, None)
        self._outside.pop(connection, None)


def stay(inside: bool) -> float:
    """Seconds until a connection is closed that has shown no token."""
    return STAY_INSIDE if inside else STAY_OUTSIDE


def is_inside(transport: Any) -> bool:
    """Whether the other end is on the sandbox's own network; a Unix socket is not among its files."""
    peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    if isinstance(own, str):
        return False
    if not peer or not own:  # it is closed already
        return True
    return peer[0] == own[0] or _is_local(peer[0]) or _is_local(own[0])


def _is_local(address: str) -> bool:
    return address == "::1" or address.removeprefix("::ffff:").startswith(("127.", "fe80:"))
