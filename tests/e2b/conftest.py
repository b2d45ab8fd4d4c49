"""One stack that serves E2B's wire, for two tenants, and sandboxes made over that wire."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests import plain_http
from tests.stack import Stack, private_stack

OTHER_KEY = "other-key"
DOMAIN = "e2b.test"
AUDIT = "audit.jsonl"


@dataclass(frozen=True)
class Box:
    """A sandbox, and a client of its envd."""

    id: str
    token: str
    envd: httpx.Client

    def headers(self, **more: str) -> dict[str, str]:
        return {"E2b-Sandbox-Id": self.id, "X-Access-Token": self.token, **more}

    def rpc(self, method: str, document: Any, **headers: str) -> httpx.Response:
        return self.envd.post(f"/{method}", json=document, headers=self.headers(**headers))

    def run(self, command: str) -> bytes:
        """Run a command by Start; return the whole stream."""
        document = {"process": {"cmd": "/bin/sh", "args": ["-c", command]}, "stdin": False}
        headers = self.headers(**{"Content-Type": "application/connect+json"})
        answer = self.envd.post("/process.Process/Start", content=enveloped(document), headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.content

    def execute(self, code: str, **fields: Any) -> list[dict[str, Any]]:
        """Run a cell; return the documents of the whole stream."""
        answer = self.envd.post("/execute", json={"code": code, **fields}, headers=self.headers())
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]


def enveloped(document: Any) -> bytes:
    payload = json.dumps(document).encode()
    return b"\0" + len(payload).to_bytes(4, "big") + payload


def messages(stream: bytes) -> list[tuple[int, Any]]:
    """The flags and the document of each message."""
    found: list[tuple[int, Any]] = []
    while stream:
        end = 5 + int.from_bytes(stream[1:5], "big")
        found.append((stream[0], json.loads(stream[5:end])))
        stream = stream[end:]
    return found


def signed(box: Box, path: str, *, operation: str = "read", expiration: int | None = None) -> dict[str, str]:
    text = f"{path}:{operation}::{box.token}" + ("" if expiration is None else f":{expiration}")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
    query = {"path": path, "signature": f"v1_{digest}"}
    return query if expiration is None else {**query, "signature_expiration": str(expiration)}


def audit_records(stack: Stack) -> list[dict[str, Any]]:
    """Those that are there now; one is there a moment after its call's answer."""
    written = (stack.state_dir / AUDIT).read_text().splitlines(keepends=True)
    return [json.loads(line) for line in written if line.endswith("\n")]  # the last may be half there


def audited(stack: Stack, action: str, resource: str) -> list[dict[str, Any]]:
    """The audit records of this."""
    return [each for each in audit_records(stack) if (each["action"], each["id"]) == (action, resource)]


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    options = (
        "--e2b",
        "--e2b-domain",
        DOMAIN,
        "--e2b-templates",
        "base=host",
        "--pool",
        "warm=2",
        "--audit-log",
        AUDIT,
    )
    with private_stack(*options, "--api-keys", f"{OTHER_KEY}:other") as running:
        yield running


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[httpx.Client]:
    """Of the control API, with the first tenant's key."""
    headers = {"X-API-Key": stack.api_key}
    with plain_http.client(base_url=f"{stack.url}/e2b", headers=headers, timeout=60) as made:
        yield made


@pytest.fixture(scope="module")
def envd(stack: Stack) -> Iterator[httpx.Client]:
    with plain_http.client(base_url=f"{stack.url}/e2b", timeout=60) as made:
        yield made


@pytest.fixture(scope="module")
def make_box(stack: Stack, client: httpx.Client, envd: httpx.Client) -> Callable[..., Box]:
    def make(*, key: str | None = None, **body: Any) -> Box:
        headers = {"X-API-Key": key or stack.api_key}
        answer = client.post("/v2/sandboxes", json={"templateID": "base", **body}, headers=headers)
        assert answer.status_code == 201, answer.text
        told = answer.json()
        return Box(told["sandboxID"], told["envdAccessToken"], envd)

    return make


@pytest.fixture(scope="module")
def box(make_box: Callable[..., Box]) -> Box:
    """A sandbox that the tests of a module share."""
    return make_box(timeout=600)
