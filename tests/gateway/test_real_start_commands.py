"""Start commands over real sidecars: an image's own, and their stop at the end of a sandbox."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests import plain_http
from tests.local.test_image_sandboxes import small_root
from tests.stack import private_stack
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces, mounts and cgroups"),
]

API = "/api/v1/sandbox"
# Its farewell takes longer than a sidecar has whose sandbox is dead already.
SAYS_BYE = """
import signal, socket, time
def bye(number, frame):
    time.sleep(1)
    socket.create_connection(("127.0.0.1", {port})).sendall(signal.Signals(number).name.encode())
    raise SystemExit
signal.signal(signal.SIGQUIT, bye)
print("up", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def _no_leaks() -> None:
    """All of the stack is looked at instead."""


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with private_stack("--pool", "warm=1", descriptors=True) as stack:
        headers = {"Authorization": f"Bearer {stack.api_key}"}
        with plain_http.client(base_url=stack.url, headers=headers, timeout=60) as client:
            yield client


def logs(client: httpx.Client, made: dict) -> str:
    return client.get(f"{API}/{made['id']}/logs").json()["logs"]


def test_an_image_s_command_is_the_start_command(client: httpx.Client, tmp_path: Path) -> None:
    said = 'echo "$0 $1 $FLAVOUR $(pwd) $(id -un)"'
    image = small_root(tmp_path / "i.tar", Entrypoint=["/bin/sh", "-c", said], Cmd=["a", "b c"])
    answer = client.post(API, json={"docker_image": str(image), "run_image_command": True})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert made["startCommand"] == {"executable": "/bin/sh", "args": ["-c", said, "a", "b c"]}
    wait_until(lambda: logs(client, made) == "a b c small /app user\n")
    plain = client.post(API, json={"docker_image": str(image)}).json()
    assert (plain["status"], plain["startCommand"], logs(client, plain)) == ("RUNNING", None, "")


def test_an_image_without_one_is_a_422_that_names_it(client: httpx.Client) -> None:
    answer = client.post(API, json={"docker_image": "host", "run_image_command": True})
    assert answer.status_code == 422, answer.text
    (error,) = answer.json()["errors"]
    assert error["param"] == "run_image_command"
    assert "the image 'host' has neither ENTRYPOINT nor CMD" in error["details"]
    assert client.get(API).json()["total"] == 0


@pytest.mark.parametrize("size", [{}, {"memory_gb": 0.5}], ids=["reused", "ended"])
def test_a_delete_lets_it_end(client: httpx.Client, size: dict[str, float]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        code = SAYS_BYE.format(port=listener.getsockname()[1])
        body = {"start_command": ["python3", "-c", code], "stop_signal": "SIGQUIT", "stop_grace_seconds": 5}
        made = client.post(API, json={"docker_image": "host", **body, **size}).json()
        assert made["status"] == "RUNNING", made
        wait_until(lambda: logs(client, made) == "up\n")
        assert client.delete(f"{API}/{made['id']}").json()["success"] is True
        assert client.get(f"{API}/{made['id']}").json()["status"] == "TERMINATED"
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(100) == b"SIGQUIT"
