"""Renewals of the TLS server's certificate: what they leave open, whom they leave alone, and an end in the middle of one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trustme
from sandlot_gateway import tls
from sandlot_gateway.data.answers import Receive, Scope, Send
from sandlot_gateway.tls import TlsServer

from tests.certificates import Certificate, issued
from tests.ports import address, free_port
from tests.waiting import SECONDS, until

END = "-----END CERTIFICATE-----\n"


async def says_hello(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


class Renewed:
    """A server whose certificate is renewed any number of times by the same authority."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authority = trustme.CA()
        self._count = 0
        self.host, self.port = address(1), free_port()
        self.served = self._issued()
        self.failing: list[bool] = []
        self.server = TlsServer(
            says_hello,
            host=self.host,
            port=self.port,
            cert=self.served.chain,
            key=self.served.key,
            backlog=128,
            keep_alive=5,
            ended=lambda: None,
            failing=self.failing.append,
        )

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        following = asyncio.create_task(self.server.follow())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.wait([following])

    def renew(self) -> str:
        """Replace the files. Returns the new certificate."""
        new = self._issued()
        shutil.copy(new.chain, self.served.chain)
        shutil.copy(new.key, self.served.key)
        return new.chain.read_text().partition(END)[0] + END

    async def presented(self) -> str:
        return await asyncio.to_thread(ssl.get_server_certificate, (self.host, self.port))

    def _issued(self) -> Certificate:
        self._count += 1
        directory = self._directory / str(self._count)
        directory.mkdir()
        return issued(directory, self.host, authority=self._authority)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_renewals_leave_no_descriptors_and_other_listeners_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    renewed = Renewed(tmp_path)
    with ExitStack() as stack:
        # Neither what is no socket nor a listener with the same port on another address is the server's.
        for _ in range(10):
            stack.callback(os.close, os.open(tmp_path, os.O_PATH))
        other = stack.enter_context(socket.socket())
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind((address(2), renewed.port))
        other.listen()
        await renewed.server.start()
        try:
            async with renewed.followed():
                counts: list[int] = []
                for number in (1, 2):
                    new = renewed.renew()
                    await until(lambda number=number: caplog.text.count("new connections get it") == number)
                    assert await renewed.presented() == new
                    counts.append(descriptors())
                assert renewed.failing == [False, False]
                # From the second renewal on one server ends with each; granian leaves one descriptor of it.
                await until(lambda: descriptors() <= counts[0] + 2)
            other.settimeout(SECONDS)
            with socket.create_connection(other.getsockname(), timeout=SECONDS):
                other.accept()[0].close()
        finally:
            await renewed.server.stop(timeout=5)


async def test_an_end_during_a_renewal_ends_both_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The change goes on until the end: it looks for the new server after so long a time.
    for name in ("_FAILS_WITHIN", "_READY_WAIT"):
        monkeypatch.setattr(tls, name, SECONDS)
    renewed = Renewed(tmp_path)
    await renewed.server.start()
    async with renewed.followed():
        new = renewed.renew()

        async def both_listen() -> bool:
            with contextlib.suppress(OSError):
                return await renewed.presented() == new
            return False

        await until(both_listen)
        assert renewed.failing == []
    await renewed.server.stop(timeout=5)

    def listens() -> bool:
        with contextlib.suppress(OSError), socket.create_connection((renewed.host, renewed.port), timeout=5):
            return True
        return False

    await until(lambda: not listens())
