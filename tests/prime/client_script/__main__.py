"""What a user of prime-sandboxes would write, with whatever this version has. Run by the client's own Python.

`python client_script [vm|container]` prints one JSON document: what each step saw, or that this version has no such step.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import prime_sandboxes as sdk  # type: ignore[import-not-found]
from file_transfer import files, reading
from lives import ended, lifetime, many, typed
from networking import network, ports
from running import commands, jobs, live, timeouts
from shared import IMAGE, RUN, plain, request


async def templates() -> dict[str, Any] | None:
    if not hasattr(sdk, "AsyncTemplateClient"):
        return None
    async with sdk.AsyncTemplateClient() as client:
        checked = await client.check_docker_image(IMAGE)
        bad = await client.check_docker_image("no such:image")
        return {
            "credentials": await client.list_registry_credentials(),
            "image": checked.accessible,
            "bad": bad.accessible,
        }


def synchronous() -> dict[str, Any]:
    client = sdk.SandboxClient(sdk.APIClient())
    box = client.create(request("sync")).id
    client.wait_for_creation(box)
    seen: dict[str, Any] = {"exec": plain(client.execute_command(box, "cat; echo $FROM_CREATE", timeout=20))}
    client.upload_bytes(box, "/tmp/s", b"sync", "s")
    seen["cat"] = plain(client.execute_command(box, "cat /tmp/s"))
    client.delete(box)
    try:
        client.execute_command(box, "true")
    except Exception as error:
        seen["gone"] = type(error).__name__
    return seen


async def main() -> dict[str, Any]:
    seen: dict[str, Any] = {"version": sdk.__version__}
    async with sdk.AsyncSandboxClient() as client:
        sandbox = await client.create(request("scenario"))
        await client.wait_for_creation(sandbox.id)
        again = await client.get(sandbox.id)
        seen["sandbox"] = [sandbox.status, again.status, again.name, RUN in again.labels]
        seen["vm"] = getattr(again, "vm", None)
        for step in (commands, timeouts, files, reading, jobs, live, network, ports, many, ended):
            seen[step.__name__] = await step(client, sandbox.id)
        seen["typed"] = await typed(client)
        seen["lifetime"] = await lifetime(client)
    seen["templates"] = await templates()
    seen["synchronous"] = await asyncio.to_thread(synchronous)
    return seen


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main()), default=str))
