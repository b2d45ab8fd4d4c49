"""The addresses of a host's name."""

from __future__ import annotations

import asyncio
import socket
import threading


async def addresses(host: str, *, family: int = socket.AF_UNSPEC) -> list[str]:
    """One at least; of one that is an address already, itself. Raises OSError, and ValueError for no name at all.

    The lookup blocks, so it gets a thread of its own for as long as it takes; nothing waits for that at the end.
    """
    for each in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(each, host)
        except OSError:
            continue
        return [host]
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[str]] = loop.create_future()

    def settle(result: list[str], error: OSError | None) -> None:
        if found.done():
            return
        if error is None:
            found.set_result(result)
        else:
            found.set_exception(error)

    def look_up() -> None:
        result, failure = [], None
        try:
            # Bytes: for a text the interpreter loads the tables of international names, half a MiB.
            told = socket.getaddrinfo(host.encode(), None, family=family, type=socket.SOCK_STREAM)
            result = [str(entry[4][0]) for entry in told]
        except OSError as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    try:
        threading.Thread(target=look_up, daemon=True).start()
    except RuntimeError as error:  # as many threads as may be
        raise OSError(str(error)) from error
    return await found
