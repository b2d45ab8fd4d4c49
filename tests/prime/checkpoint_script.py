"""What a user of prime-sandboxes with checkpoints would write. Run by the client's own Python; prints one JSON document."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import prime_sandboxes as sdk  # type: ignore[import-not-found]

IMAGE = os.environ["SANDLOT_SCRIPT_IMAGE"]


async def output(client: Any, sandbox_id: str, command: str) -> str:
    return (await client.execute_command(sandbox_id, command)).stdout


async def error_of(work: Any) -> str:
    try:
        await work
    except (sdk.APIError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


async def main() -> dict[str, Any]:
    client = sdk.AsyncSandboxClient()
    seen: dict[str, Any] = {}
    first = await client.create(sdk.CreateSandboxRequest(name="first", docker_image=IMAGE, memory_gb=1))
    await client.wait_for_creation(first.id)
    await output(
        client,
        first.id,
        "mkdir /app && cd /app && echo text > file && chmod 750 file && ln -s file link && rm /etc/issue"
        " && head -c 5000000 /dev/urandom > big && sha256sum big > sum",
    )
    begun = await client.checkpoint(first.id)
    seen["begun"] = [begun.state in ("PENDING", "DURABLE"), begun.sandbox_id == first.id, begun.depth]
    made = await client.wait_for_checkpoint(begun.id)
    seen["made"] = [made.state, made.docker_image, made.stored_bytes > 5_000_000, made.error]
    seen["got"] = (await client.get_checkpoint(made.id)).id == made.id
    await client.delete(first.id)
    restored = await client.create(
        sdk.CreateSandboxRequest(name="second", checkpoint_id=made.id, memory_gb=1)
    )
    await client.wait_for_creation(restored.id)
    seen["image"] = (await client.get(restored.id)).docker_image
    look = "cd /app && sha256sum -c sum && cat link && stat -c %a file && ! test -e /etc/issue && echo gone"
    seen["files"] = (await output(client, restored.id, look)).split("\n")
    again = await client.wait_for_checkpoint((await client.checkpoint(restored.id)).id)
    seen["child"] = [again.parent_id == made.id, again.depth]
    listed = await client.list_checkpoints(restored.id)
    seen["listed"] = [one.id == again.id for one in listed]
    one = await client.list_checkpoints(restored.id, checkpoint_id="cp-other")
    seen["one"] = len(one)
    batch = await client.get_checkpoints([made.id, again.id, "cp-missing"])
    seen["batch"] = [len(batch.checkpoints), [[error.checkpoint_id, error.code] for error in batch.errors]]
    deleted = await client.delete_sandbox_checkpoints(restored.id)
    seen["deleted"] = [deleted.deleted == [again.id], len(deleted.errors)]
    await client.delete_checkpoint(made.id)
    seen["missing"] = await error_of(client.get_checkpoint(made.id))
    seen["from nothing"] = await error_of(
        client.create(sdk.CreateSandboxRequest(name="third", checkpoint_id=made.id, memory_gb=1))
    )
    await client.delete(restored.id)
    return seen


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main())))
