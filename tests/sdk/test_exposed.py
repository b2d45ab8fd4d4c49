"""A port of a real sandbox is reached from outside, over HTTP and over bare TCP."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator

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
