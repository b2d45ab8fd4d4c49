"""Waits until connections that were closed are gone: TLS says goodbye first, and waits for that of the other side."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

from tests.waiting import until_empty


@contextlib.asynccontextmanager
async def sockets_closed() -> AsyncIterator[None]:
    """Around what opens connections and closes them; ends when none of them is left."""
    before = open_sockets()
    yield
    await until_empty(lambda: open_sockets() - before)


def open_sockets() -> set[str]:
    links: set[str] = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
            links.add(os.readlink(f"/proc/self/fd/{name}"))
    return {link for link in links if link.startswith("socket:")}
