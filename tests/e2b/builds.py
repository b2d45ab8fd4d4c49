"""A stack for template builds, and what their tests ask of it over E2B's wire."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests import plain_http
from tests.e2b.conftest import AUDIT
from tests.stack import Stack, private_stack
from tests.waiting import wait_until

OTHER_KEY = "other-key"
START = {"fromImage": "host", "steps": []}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    options = (
        "--e2b",
        "--e2b-templates",
        "base=host",
        "--local-images",
        "host",
        "--audit-log",
        AUDIT,
    )
    with private_stack(*options, "--api-keys", f"{OTHER_KEY}:other") as running:
        yield running


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[httpx.Client]:
    headers = {"X-API-Key": stack.api_key}
    with plain_http.client(base_url=f"{stack.url}/e2b", headers=headers, timeout=60) as made:
        yield made


def requested(client: httpx.Client, name: str = "mine", **more: Any) -> dict[str, Any]:
    answer = client.post("/v3/templates", json={"name": name, **more})
    assert answer.status_code == 202, answer.text
    return answer.json()


def path_of(build: dict[str, Any]) -> str:
    return f"/v2/templates/{build['templateID']}/builds/{build['buildID']}"


def status(client: httpx.Client, build: dict[str, Any], **query: Any) -> dict[str, Any]:
    path = f"/templates/{build['templateID']}/builds/{build['buildID']}/status"
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def started(client: httpx.Client, build: dict[str, Any], *steps: Any, **more: Any) -> None:
    answer = client.post(path_of(build), json={**START, "steps": steps, **more})
    assert answer.status_code == 202, answer.text


def ended(client: httpx.Client, build: dict[str, Any]) -> dict[str, Any]:
    def done() -> dict[str, Any]:
        found = status(client, build)
        return found if found["status"] in ("ready", "error") else {}

    return wait_until(done)


def checkpoints(stack: Stack, name: str) -> list[dict[str, Any]]:
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    with plain_http.client(base_url=f"{stack.url}/api/v1", headers=headers, timeout=60) as ours:
        return ours.get("/sandbox/checkpoints", params={"name": name}).json()["checkpoints"]


def live_sandboxes(stack: Stack, build: dict[str, Any]) -> list[dict[str, Any]]:
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    query = {"labels": f"e2b-build={build['buildID']}", "is_active": True}
    with plain_http.client(base_url=f"{stack.url}/api/v1", headers=headers, timeout=60) as ours:
        return ours.get("/sandbox", params=query).json()["sandboxes"]


def uploaded(
    client: httpx.Client, build: dict[str, Any], files_hash: str, entries: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    """Upload an archive with these entries."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for entry, content in entries:
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    told = client.get(f"/templates/{build['templateID']}/files/{files_hash}").json()
    with plain_http.client(timeout=60) as plain:
        assert plain.put(told["url"], content=data.getvalue()).status_code == 200
