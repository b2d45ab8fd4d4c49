"""What tests of checkpoints and forks ask of their real stack."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest_asyncio
from sandlot import AsyncClient, AsyncSandbox

from tests import plain_http
from tests.e2e.processes import sidecars
from tests.stack import Stack
from tests.stopped import stopped


@pytest_asyncio.fixture
async def client(stack: Stack) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url=stack.url, api_key=stack.api_key) as client:
        yield client


def ask(stack: Stack, method: str, path: str, *, key: str | None = None, body: Any = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key or stack.api_key}"}
    return plain_http.request(method, f"{stack.url}/api/v1{path}", headers=headers, json=body, timeout=60)


async def run(box: AsyncSandbox, command: str) -> str:
    result = await box.exec(command)
    assert result.ok, result
    return result.stdout


@contextmanager
def stopped_sidecars(stack: Stack) -> Iterator[None]:
    with stopped(*sidecars(stack)):
        yield
