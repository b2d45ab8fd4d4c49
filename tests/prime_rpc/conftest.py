"""One stack with warm sandboxes for the tests of a module, and sandboxes to spend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import plain_http
from tests.prime.server import Server
from tests.prime_rpc.support import Box
from tests.stack import Stack, private_stack
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with private_stack("--pool", "warm=2") as running:
        yield running


@pytest.fixture(scope="module")
def server(stack: Stack) -> Server:
    """The stack, as published clients have it."""
    here = {"SANDLOT_SCRIPT_STATE": str(stack.state_dir)}
    return Server(url=stack.url, api_key=stack.api_key, image="host", log=stack.log, environment=here)


@pytest.fixture(scope="module")
def box(server: Server) -> Box:
    """A sandbox that the tests of the module share."""
    return make_box(server, image=server.image)


@pytest.fixture
def new_box(server: Server) -> Callable[[], Box]:
    return lambda: make_box(server, image=server.image)


def make_box(server: Server | Stack, *, image: str = "host", **more: Any) -> Box:
    headers = {"Authorization": f"Bearer {server.api_key}"}
    with plain_http.client(base_url=f"{server.url}/api/v1", headers=headers, timeout=60) as client:
        body = {"name": "rpc", "docker_image": image, "memory_gb": 1, "vm": True, **more}
        answer = client.post("/sandbox", json=body)
        assert answer.status_code in (200, 201), answer.text
        sandbox_id, auth = answer.json()["id"], answer.json()["gatewayAuth"]

        def begun() -> dict[str, Any]:
            told = client.get(f"/sandbox/{sandbox_id}").json()
            return {} if told["status"] == "PENDING" else told

        # On a loaded machine a start takes longer than the answer waits for it.
        document = wait_until(begun)
    assert document["status"] == "RUNNING", document
    return Box(url=server.url, api_key=server.api_key, auth=auth, sandbox_id=sandbox_id)
