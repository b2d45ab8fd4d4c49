"""One stack with warm sandboxes for the tests of a module, and sandboxes to spend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.prime.server import Server
from tests.prime_rpc.support import Box
from tests.stack import Stack, private_stack


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with private_stack("--pool", "warm=2") as running:
        yield running


@pytest.fixture(scope="module")
def server(stack: Stack) -> Server:
    """The stack, as published clients have it."""
    return Server(url=stack.url, api_key=stack.api_key, image="host", log=stack.log)


@pytest.fixture(scope="module")
def box(server: Server) -> Box:
    """A sandbox that the tests of the module share."""
    return make_box(server, image=server.image)


@pytest.fixture
def new_box(server: Server) -> Callable[[], Box]:
    return lambda: make_box(server, image=server.image)


def make_box(server: Server | Stack, *, image: str = "host", **more: Any) -> Box:
    answer = httpx.post(
        f"{server.url}/api/v1/sandbox",
        headers={"Authorization": f"Bearer {server.api_key}"},
        json={"name": "rpc", "docker_image": image, "memory_gb": 1, "vm": True, **more},
        timeout=60,
    )
    assert answer.status_code in (200, 201), answer.text
    document = answer.json()
    assert document["status"] == "RUNNING", document
    return Box(
        url=server.url, api_key=server.api_key, auth=document["gatewayAuth"], sandbox_id=document["id"]
    )
