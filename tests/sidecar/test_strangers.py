"""Connections without a token are bounded in number, those from inside of the sandbox apart from others."""

from __future__ import annotations

from typing import Any

from sandlot_sidecar.server.http import Http
from sandlot_sidecar.server.untrusted_connections import MOST_INSIDE, MOST_OUTSIDE


class Wire:
    """A transport that only knows its two ends."""

    def __init__(self, peer: Any, own: Any) -> None:
        self._ends = {"peername": peer, "sockname": own}
        self.aborted = False

    def get_extra_info(self, name: str) -> Any:
        return self._ends[name]

    def set_write_buffer_limits(self, *, high: int) -> None:
        return

    def abort(self) -> None:
        self.aborted = True

    close = abort


INSIDE = [
    Wire(("127.0.0.1", 5), ("127.0.0.1", 1)),
    Wire(("127.0.0.9", 5), ("10.0.0.7", 1)),
    Wire(("10.0.0.7", 5), ("10.0.0.7", 1)),
    Wire(("10.0.0.7", 5), ("127.0.0.1", 1)),
    Wire(("::1", 5, 0, 0), ("::1", 1, 0, 0)),
    Wire(("::ffff:127.0.0.1", 5, 0, 0), ("::ffff:10.0.0.7", 1, 0, 0)),
    Wire(("fe80::7", 5, 0, 2), ("fd00::7", 1, 0, 0)),
    Wire(None, ("10.0.0.7", 1)),
]
OUTSIDE = [
    Wire(("10.0.0.8", 5), ("10.0.0.7", 1)),
    Wire(("fd00::8", 5, 0, 0), ("fd00::7", 1, 0, 0)),
    Wire("", "/a/socket"),
]


async def test_strangers_are_counted_by_where_they_come_from() -> None:
    http = Http(instance_token="t")

    def connect(wire: Wire) -> Wire:
        http.connect().connection_made(wire)
        return wire

    gateways = [connect(wire) for wire in OUTSIDE]
    floods = [connect(Wire(INSIDE[0].get_extra_info("peername"), ("127.0.0.1", 1))) for _ in range(1000)]
    floods += [connect(wire) for wire in INSIDE]
    assert not any(wire.aborted for wire in gateways)
    assert sum(not wire.aborted for wire in floods) == MOST_INSIDE
    more = [connect(Wire(("10.0.0.8", 5), ("10.0.0.7", 1))) for _ in range(1000)]
    assert sum(not wire.aborted for wire in more) == MOST_OUTSIDE
    await http.close()
