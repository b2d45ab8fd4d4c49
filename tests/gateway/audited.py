"""A running gateway with an audit log, whose calls come with their records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.audit_records import record_of
from tests.gateway.conftest import API, KEY, Running, running

Record = dict[str, Any]
_numbers = count(1)


class Audited:
    """A running gateway with an audit log; `call` returns an answer with its record."""

    def __init__(self, box: Running, path: Path) -> None:
        self.box = box
        self.path = path

    async def call(
        self, method: str, path: str, *, key: str | None = KEY, **options: Any
    ) -> tuple[httpx.Response, Record]:
        request = f"r-{next(_numbers)}"
        headers = {**options.pop("headers", {}), "X-Request-Id": request}
        # An empty one replaces the client's own.
        headers["Authorization"] = f"Bearer {key}" if key is not None else ""
        answer = await self.box.client.request(method, path, headers=headers, **options)
        record = await record_of(self.path, request)
        assert record["status"] == answer.status_code
        return answer, record

    async def create(self, **fields: Any) -> tuple[Record, Record]:
        answer, record = await self.call("POST", f"{API}/sandbox", json={"docker_image": "host", **fields})
        return answer.json(), record


@pytest.fixture
async def audited(state_dir: Path, machine) -> AsyncIterator[Audited]:
    async with running(state_dir, machine, audit_log="audit.log") as box:
        yield Audited(box, state_dir / "audit.log")
