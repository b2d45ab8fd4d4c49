"""Two tenants on the real local backend: a used slot is its tenant's, also after a restart of the gateway."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests import plain_http
from tests.stack import Stack, private_stack
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces, mounts and cgroups"),
]

API = "/api/v1"


@pytest.fixture
def _no_leaks() -> None:
    """All of the stack is looked at instead, see `stack`."""


@pytest.fixture
def stack() -> Iterator[Stack]:
    keys = {"SANDLOT_API_KEYS": "key-a:alpha,key-b:beta"}
    with private_stack("--pool", "warm=1", env=keys, descriptors=True) as stack:
        yield stack


def bindings(stack: Stack) -> dict[str, tuple[str | None, int]]:
    """Of each instance that is there, by its sidecar's record."""
    records = {path.parent.name: path for path in stack.state_dir.glob("instances/*/claim.json")}
    documents: dict[str, dict[str, Any]] = {}
    for name, path in records.items():
        with suppress(FileNotFoundError):  # it has ended since
            documents[name] = json.loads(path.read_text())
    return {name: (document["bound_to"], document["uses"]) for name, document in documents.items()}


def of(stack: Stack, key: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}"}
    return plain_http.client(base_url=stack.url, headers=headers, timeout=60)


def use(client: httpx.Client) -> bool:
    """One sandbox from its create to its end; whether it came from the pool."""
    made = client.post(f"{API}/sandbox", json={"docker_image": "host"}).json()
    assert made["status"] == "RUNNING", made
    run = client.post(f"/sbx/{made['id']}/exec", json={"command": "test ! -e /tmp/mine && touch /tmp/mine"})
    assert run.json()["exit_code"] == 0, run.text
    assert client.delete(f"{API}/sandbox/{made['id']}").json()["success"] is True
    return made["poolHit"]


def ready(client: httpx.Client) -> int:
    return client.get(f"{API}/pools").json()["pools"][0]["ready"]


def test_a_used_slot_is_its_tenants(stack: Stack) -> None:
    with of(stack, "key-a") as alpha, of(stack, "key-b") as beta:
        wait_until(lambda: ready(alpha) == 1)
        assert use(alpha)
        wait_until(lambda: ("alpha", 1) in bindings(stack).values())
        wait_until(lambda: ready(alpha) >= 1)
        used = {name for name, (tenant, _) in bindings(stack).items() if tenant == "alpha"}
        stack.kill()
        stack.start()
        wait_until(lambda: ready(alpha) >= 1)
        for _ in range(3):
            use(beta)
        for name, (tenant, uses) in bindings(stack).items():
            assert tenant == "alpha" if name in used else tenant in (None, "beta"), (name, tenant, uses)
        use(alpha)
        assert all(tenant != "beta" for name, (tenant, _) in bindings(stack).items() if name in used)
