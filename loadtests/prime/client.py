"""Times create to first output with prime-sandboxes, once per line on stdin. Runs in the client's own Python.

Prints one JSON line a round: the sandbox's id and the seconds until it was created, waited for, and had its output.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import prime_sandboxes as sdk  # type: ignore[import-not-found]


async def main() -> None:
    request = sdk.CreateSandboxRequest(name="bench", docker_image="host", memory_gb=1, timeout_minutes=10)
    async with sdk.AsyncSandboxClient() as client:
        while await asyncio.to_thread(sys.stdin.readline):
            begun = time.perf_counter()
            box = await client.create(request)
            created = time.perf_counter()
            await client.wait_for_creation(box.id)
            waited = time.perf_counter()
            result = await client.execute_command(box.id, "echo ready")
            ended = time.perf_counter()
            assert result.stdout == "ready\n", result
            await client.delete(box.id)
            seen = {
                "id": box.id,
                "created": created - begun,
                "waited": waited - begun,
                "first": ended - begun,
            }
            print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
