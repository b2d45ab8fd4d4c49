"""A port of a real sandbox is reached from outside, over HTTP, bare TCP and UDP."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from sandlot import Client, Sandbox, Stderr, Stdout

from tests.ports import free_port
from tests.stack import Stack
from tests.waiting import SECONDS

pytestmark = pytest.mark.root

# Sandboxes on one machine share its network: a port of one's own, or another test's server is there.
ECHO = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
while True:
    peer, _ = server.accept()
    with peer:
        while data := peer.recv(4096):
            peer.sendall(data.upper())
"""

DATAGRAMS = """
import socket, sys
server = socket.socket(type=socket.SOCK_DGRAM)
server.bind(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
while True:
    data, client = server.recvfrom(65536)
    server.sendto(data.upper(), client)
"""


@pytest.fixture
def box(stack: Stack) -> Iterator[Sandbox]:
    with Client(url=stack.url, api_key=stack.api_key) as client, Sandbox.create(client=client) as box:
        yield box


def start(box: Sandbox, command: str | list[str], *, says: str) -> None:
    """Starts a server that lives as long as the sandbox, and waits until it says that it listens."""
    process = box.start(command, stdin=False, detach=True)
    for event in process:
        if isinstance(event, Stdout | Stderr) and says in event.text:
            process.detach()
            return
    raise AssertionError("the server has ended")


def test_http(box: Sandbox) -> None:
    box.files.write("/srv/page/index.html", "from inside")
    port = free_port()
    start(box, f"cd /srv/page && exec python3 -u -m http.server {port}", says="Serving HTTP")
    url = box.expose(port)
    with urllib.request.urlopen(f"{url.rstrip('/')}/index.html", timeout=SECONDS) as answer:
        assert answer.read() == b"from inside"


def test_tcp(box: Sandbox) -> None:
    inside = free_port()
    start(box, ["python3", "-c", ECHO, str(inside)], says="listening")
    host, _, port = box.expose(inside, protocol="tcp").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS) as peer:
        peer.sendall(b"hello")
        peer.shutdown(socket.SHUT_WR)
        received = b""
        while data := peer.recv(4096):
            received += data
    assert received == b"HELLO"


def test_udp(box: Sandbox) -> None:
    inside = free_port()
    start(box, ["python3", "-c", DATAGRAMS, str(inside)], says="listening")
    box.set_network(allow=[])
    host, _, port = box.expose(inside, protocol="udp").rpartition(":")
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)) for _ in range(2)]
        for client in clients:
            client.settimeout(SECONDS)
            client.connect((host, int(port)))
            for payload in (b"hello", b"", b"a" * 65_507):
                client.send(payload)
                assert client.recv(65_536) == payload.upper()
        assert [(each.protocol, each.port) for each in box.exposures()] == [("udp", inside)]
        box.unexpose(inside)
        clients[0].send(b"to nobody")
        with pytest.raises(ConnectionRefusedError):
            clients[0].recv(1)
