"""An upstream that lives and does not accept: its backlog is full until the test lets it go on."""

from __future__ import annotations

import asyncio
import socket

from tests.dataplane.upstreams import Behaviour, Upstream


class SlowUpstream(Upstream):
    """Connection attempts get no answer at all until `accept`: the kernel drops what its backlog has no room for."""

    def __init__(self, behave: Behaviour) -> None:
        super().__init__(behave)
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(0)
        self._fillers: list[socket.socket] = []
        where = self._listener.getsockname()
        for _ in range(3):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(where)
            self._fillers.append(filler)
        self.address = f"127.0.0.1:{where[1]}"

    async def accept(self) -> None:
        self._empty()
        self._server = await asyncio.start_server(
            self._accept, sock=self._listener, limit=1 << 20, backlog=1024
        )

    async def close(self) -> None:
        self._empty()
        self._listener.close()
        await super().close()

    def _empty(self) -> None:
        for filler in self._fillers:
            filler.close()
        self._fillers.clear()
