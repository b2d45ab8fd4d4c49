"""Steps about whole sandboxes: many at once, deleted ones, ones whose time is over, requests that are refused."""

from __future__ import annotations

import os
import time
from typing import Any

import prime_sandboxes as sdk  # type: ignore[import-not-found]
from shared import IMAGE, MODE, RUN, error_of, request


async def many(client: Any, box: str) -> dict[str, Any]:
    """Five sandboxes: found by label, waited for, deleted at once."""
    made = [await client.create(request(f"many-{number}", labels=["many"])) for number in range(4)]
    ids = [each.id for each in made]
    waited = await client.bulk_wait_for_creation(ids)
    names, pages = [], 0
    while True:
        pages += 1
        page = await client.list(labels=[RUN, "many"], page=pages, per_page=3)
        names += [each.name for each in page.sandboxes]
        if not page.has_next:
            break
    seen: dict[str, Any] = {
        "waited": sorted(set(waited.values())),
        "names": names,
        "pages": pages,
        "total": page.total,
        "other": (await client.list(labels=[RUN, "nobody"])).total,
    }
    if hasattr(client, "get_sandbox_statuses"):
        told = await client.get_sandbox_statuses([*ids, "unknown"])
        seen["statuses"] = [
            sorted({each.status.value for each in told.statuses}),
            [[e.sandbox_id, e.code] for e in told.errors],
        ]
    first = await client.bulk_delete(sandbox_ids=[ids[0], "unknown"])
    seen["by id"] = [first.succeeded == [ids[0]], first.failed]
    second = await client.bulk_delete(labels=[RUN, "many"])
    seen["by label"] = [sorted(second.succeeded) == sorted(ids[1:]), second.failed]
    left = await client.list(labels=[RUN], exclude_terminated=True)
    seen["left"] = [each.id for each in left.sandboxes] == [box]
    return seen


async def ended(client: Any, box: str) -> dict[str, Any]:
    await client.delete(box)
    seen: dict[str, Any] = {"exec": await error_of(client.execute_command(box, "true"))}
    seen["wait"] = (await error_of(client.wait_for_creation(box)))[0]
    seen["status"] = (await client.get(box)).status
    await client.delete(box)  # a second time
    seen["unknown"] = (await error_of(client.delete("unknown")))[-1]
    seen["logs"] = await client.get_logs(box)
    return seen


async def typed(client: Any) -> dict[str, Any]:
    """Requests that are refused."""
    async with sdk.AsyncSandboxClient(api_key="wrong") as stranger:
        key = await error_of(stranger.list())
    return {
        "key": key[:-1],
        "image": await error_of(
            client.create(sdk.CreateSandboxRequest(name="x", docker_image="/no/such/directory", **MODE))
        ),
        "get": (await error_of(client.get("unknown")))[-1],
    }


async def lifetime(client: Any) -> dict[str, Any]:
    """A sandbox whose time is over. Made by hand: the clients know minutes only."""
    import httpx

    headers = {"Authorization": f"Bearer {os.environ['PRIME_API_KEY']}"}
    body = {"name": "short", "docker_image": IMAGE, "memory_gb": 1, "timeout_seconds": 0.5}
    async with httpx.AsyncClient(base_url=os.environ["PRIME_API_BASE_URL"], headers=headers) as http:
        box = (await http.post("/api/v1/sandbox", json=body, timeout=60)).json()["id"]
    status, deadline = "PENDING", time.monotonic() + 60
    while status in ("PENDING", "RUNNING") and time.monotonic() < deadline:
        status = (await client.get(box)).status
    return {
        "status": status,
        "exec": (await error_of(client.execute_command(box, "true")))[0],
        "wait": (await error_of(client.wait_for_creation(box)))[0],
    }
