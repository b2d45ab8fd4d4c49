"""The connections to an S3 server that a gateway keeps."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest
from sandlot_gateway.checkpoints.s3.http import Http
from sandlot_gateway.checkpoints.s3.signing import Credentials
from sandlot_gateway.s3_place import place

from tests.s3.http_servers import answering


def test_an_idle_connection_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []
    connect = socket.socket.connect

    def connected(self: socket.socket, address: tuple[str, int]) -> None:
        connect(self, address)
        made.append(self)

    monkeypatch.setattr(socket.socket, "connect", connected)
    credentials = Credentials({"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "key"})
    with answering(lambda method, path: (200, b"")) as url:
        http = Http(place("s3://box/kept", endpoint=url), credentials=credentials)
        try:
            http.send("GET", "one")
            server = (urlsplit(url).hostname, urlsplit(url).port)
            made = [sock for sock in made if sock.getpeername() == server]
            assert [sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for sock in made] == [1]
            assert made[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) < 60
            assert made[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        finally:
            http.close()
