"""Calls that create groups of sandboxes, and a look at what is left of one."""

from __future__ import annotations

from typing import Any

import httpx

from tests.gateway.conftest import Running
from tests.waiting import until

HOST = {"docker_image": "host"}


async def ask_for_group(
    box: Running, members: list[dict[str, Any]], *, key: str = "", **fields: Any
) -> httpx.Response:
    headers = box.as_tenant(key) if key else {}
    body = {"members": members, **fields}
    return await box.client.post("/api/v1/group", json=body, headers=headers)


async def create_group(box: Running, count: int, **fields: Any) -> dict[str, Any]:
    answer = await ask_for_group(box, [{**HOST, "count": count}], **fields)
    assert answer.status_code == 201, answer.text
    return answer.json()


def ids_of(group: dict[str, Any]) -> list[str]:
    return [member["id"] for member in group["sandboxes"]]


async def nothing_left(box: Running) -> None:
    await until(lambda: box.gateway.directory.total_live == 0)
    await until(lambda: box.machine.claimed() == [])
    assert box.gateway.supply.waiting == 0
