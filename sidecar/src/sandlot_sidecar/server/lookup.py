"""Resolves host names."""

from __future__ import annotations

import asyncio
import socket
import threading


async def addresses(host: str, *, family: int = socket.AF_UNSPEC) -> list[str]:
    """Return a host's addresses, at least one; an address resolves to itself. Raises OSError or ValueError.

    The lookup blocks, so each gets a thread of its own, which the shutdown does not wait for.
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
            # As bytes: for a str the interpreter loads the IDNA tables, 0.5 MiB.
            told = socket.getaddrinfo(host.encode(), None, family=family, type=socket.SOCK_STREAM)
            result = [str(entry[4][0]) for entry in told]
        except OSError as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:  # the loop is closed, so nothing waits for the result
            return

    try:
        threading.Thread(target=look_up, daemon=True).start()
    except RuntimeError as error:  # the thread limit is reached
        raise OSError(str(error)) from error
    return await found
