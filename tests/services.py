"""What every backend must do for services of a group: programs for its sandboxes, and checks of a whole group."""

from __future__ import annotations

from typing import Any

from sandlot import Client, Sandbox
from sandlot._sync.groups import Group

from tests.waiting import SECONDS, wait_until

# Sends its name, and what it has read once its client has ended its half: the end of one direction alone has to arrive.
MIRROR = """
import socket, sys, threading
def serve(connection):
    with connection:
        connection.sendall(sys.argv[2].encode() + b":")
        pieces = []
        while piece := connection.recv(1 << 16):
            pieces.append(piece)
        connection.sendall(b"".join(pieces))
listening = socket.create_server(("0.0.0.0", int(sys.argv[1])), backlog=1024)
while True:
    threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()
"""
# Prints what came back, or its length and whether it is what was sent, or the error.
ASK = """
import hashlib, os, socket, sys, threading
host, port, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sent = os.urandom(size) if size else b"hello"
try:
    with socket.create_connection((host, port), timeout=60) as connection:
        failed = []
        def send():
            try:
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
            except OSError as error:
                failed.append(error)
        sending = threading.Thread(target=send)
        sending.start()
        pieces = []
        while piece := connection.recv(1 << 16):
            pieces.append(piece)
        sending.join()
        if failed:
            raise failed[0]
    found = b"".join(pieces)
    name, _, rest = found.partition(b":")
    print(found.decode() if not size else f"{name.decode()} {len(rest)} {rest == sent}")
except OSError as error:
    print(type(error).__name__)
"""
REFUSED = {"ConnectionRefusedError\n", "ConnectionResetError\n", "BrokenPipeError\n"}


def created(client: Client, *, tag: str = "db", **common: Any) -> Group[Sandbox]:
    """A group of a database, a web server, and an agent that is no service; their servers run."""
    kinds: list[dict[str, Any]] = [
        {"service": "db", "ports": [5432, 5433]},
        {"service": "web", "ports": [8080]},
        {"name": "agent"},
    ]
    group = Sandbox.create_group(kinds, client=client, **common)
    serve(group["db"], 5432, tag)
    serve(group["web"], 8080, "web")
    return group


def serve(box: Sandbox, port: int, name: str) -> None:
    """Start a mirror that begins its answers with this name, and wait until it listens."""
    box.files.write("/mirror.py", MIRROR)
    box.start(["python3", "/mirror.py", str(port), name], detach=True)
    wait_until(lambda: ask(box, "127.0.0.1", port) == f"{name}:hello\n")


def ask(box: Sandbox, host: str, port: int, size: int = 0) -> str:
    """What a client in the sandbox prints."""
    done = box.exec(["python3", "-c", ASK, host, str(port), str(size)], timeout=SECONDS)
    assert done.exit_code == 0, done
    return done.stdout


def check_that_names_lead_to_services(group: Group[Sandbox]) -> None:
    """From each sandbox of the group, in both directions, also much and with an end of one direction alone."""
    agent = group[2]
    assert ask(agent, "db", 5432) == "db:hello\n"
    assert ask(agent, "web", 8080) == "web:hello\n"
    assert ask(group["web"], "db", 5432) == "db:hello\n"
    assert ask(group["db"], "web", 8080) == "web:hello\n"
    assert ask(agent, "db", 5432, 20 << 20) == f"db {20 << 20} True\n"
    # Its own name is the sandbox itself, whatever the port.
    assert ask(group["db"], "db", 5432) == "db:hello\n"
    assert "127.0.0.1\tdb" in group["db"].files.read("/etc/hosts").decode()


def check_that_the_rest_is_refused(group: Group[Sandbox], outsider: Sandbox) -> None:
    """A port that is not declared, one without a server, and every port for a sandbox outside of the group."""
    agent = group[2]
    serve(group["db"], 6000, "hidden")
    assert ask(agent, "db", 6000) in REFUSED, "not declared"
    assert ask(agent, "db", 5433) in REFUSED, "nothing listens"
    addresses = [
        line.split()[0] for line in agent.files.read("/etc/hosts").decode().splitlines() if "service" in line
    ]
    assert len(addresses) == 2
    assert ask(outsider, "db", 5432) == "gaierror\n"
    for address in addresses:
        assert ask(outsider, address, 5432) in REFUSED
        assert ask(outsider, address, 8080) in REFUSED
