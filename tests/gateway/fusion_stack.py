"""A real stack that serves SandboxFusion's API to two tenants, and its run_code by plain HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests import plain_http
from tests.stack import Stack, private_stack

KEY = "key-of-alpha"
ONE_SANDBOX = "key-of-beta"  # with a quota
SANDBOXES = 3


@pytest.fixture
def _no_leaks() -> None:
    """All of the stack is looked at instead, see `stack`."""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    keys = {"SANDLOT_API_KEYS": f"{KEY}:alpha,{ONE_SANDBOX}:beta:1"}
    options = ("--fusion", "host,perl=@code,php=@missing", "--fusion-sandboxes", str(SANDBOXES))
    with private_stack(
        *options, "--pool", "code=1", "--audit-log", "audit.log", "--log-level", "debug", env=keys
    ) as running:
        yield running


def send(
    stack: Stack, code: str, language: str = "bash", *, query: str = "", **fields: Any
) -> httpx.Response:
    # The usual 10 seconds each may pass on a loaded machine before a program runs, or a sandbox is free for it.
    body = {"code": code, "language": language, "compile_timeout": 60, "run_timeout": 60, **fields}
    return plain_http.post(f"{stack.url}/fusion/{KEY}/run_code{query}", json=body, timeout=200)


def run(stack: Stack, code: str, language: str = "bash", **fields: Any) -> dict[str, Any]:
    answer = send(stack, code, language, **fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def workers(stack: Stack) -> list[dict[str, Any]]:
    """The live sandboxes in which code runs."""
    headers = {"Authorization": f"Bearer {KEY}"}
    query = {"labels": "sandbox-fusion", "is_active": "true"}
    return plain_http.get(f"{stack.url}/api/v1/sandbox", params=query, headers=headers).json()["sandboxes"]
