"""Steps about the sandbox's network: what it may reach, and its ports seen from outside."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import prime_sandboxes as sdk  # type: ignore[import-not-found]
from shared import takes


async def network(client: Any, box: str) -> dict[str, Any] | None:
    if not hasattr(client, "get_network"):
        return None
    status = await client.get_network(box)
    return {
        "status": [status.policy.allowlist, status.policy.denylist, status.applied],
        "same": (await client.set_network(box, allow=["*"])).applied,
        "names": await policy_of(client.set_network(box, allow=["Example.org", "*.example.org"])),
        "none": await policy_of(client.set_network(box, deny=["*"])),
        "some": await policy_of(client.set_network(box, deny=["192.0.2.0/24"])),
        "open": await policy_of(client.set_network(box, allow=["*"])),
    }


async def policy_of(work: Any) -> list[Any]:
    try:
        status = await work
    except sdk.APIError as error:
        return [type(error).__name__, str(error)]
    return [status.policy.allowlist, status.policy.denylist, status.generation, status.applied]


async def ports(client: Any, box: str) -> dict[str, Any] | None:
    """A web server in the sandbox, seen from outside."""
    if not hasattr(client, "expose"):
        return None
    import httpx

    # Sandboxes on one machine share its network: other versions run beside this one.
    inside = int(os.environ["SANDLOT_SCRIPT_PORT"])
    try:
        exposed = await client.expose(box, inside, name="web")
    except sdk.APIError as error:
        return {"refused": str(error)}
    serve = f"cd /tmp; echo hello > index.html; python3 -m http.server {inside} > /dev/null 2>&1 &"
    await client.execute_command(box, serve)
    async with httpx.AsyncClient(timeout=60) as browser:
        deadline = time.monotonic() + 60
        while (answer := await browser.get(exposed.url + "/index.html")).status_code != 200:
            assert time.monotonic() < deadline, answer.text
            await asyncio.sleep(0.1)  # until the web server listens
    listed = await client.list_exposed_ports(box)
    seen: dict[str, Any] = {}
    if takes(client.expose, "protocol") and "SANDLOT_SCRIPT_TCP" in os.environ:
        plain_port = await client.expose(box, inside, name="plain", protocol="TCP")
        host, _, port = plain_port.external_endpoint.rpartition(":")
        async with httpx.AsyncClient(timeout=60) as browser:
            answer_there = await browser.get(f"http://{host}:{port}/index.html")
        await client.unexpose(box, plain_port.exposure_id)
        seen["tcp"] = answer_there.text
        datagrams = await client.expose(box, inside, name="datagrams", protocol="UDP")
        await client.unexpose(box, datagrams.exposure_id)
        seen["udp"] = datagrams.url == f"udp://{datagrams.external_endpoint}"
    await client.unexpose(box, exposed.exposure_id)
    after = await client.list_exposed_ports(box)
    return {
        **seen,
        "text": answer.text,
        "listed": [[each.port == inside, each.name] for each in listed.exposures],
        "after": after.exposures,
    }
