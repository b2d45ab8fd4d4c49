"""Steps that bring files into the sandbox and back."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from shared import error_of, takes


async def files(client: Any, box: str) -> dict[str, Any]:
    content = os.urandom(5_000_000)
    digest = hashlib.sha256(content).hexdigest()
    with tempfile.TemporaryDirectory() as directory:
        up, down = Path(directory, "up"), Path(directory, "down")
        await asyncio.to_thread(up.write_bytes, content)
        told = await client.upload_file(box, "/tmp/made/on/the/way/five", str(up))
        inside = await client.execute_command(box, "sha256sum < /tmp/made/on/the/way/five")
        await client.download_file(box, "/tmp/made/on/the/way/five", str(down))
        back = hashlib.sha256(await asyncio.to_thread(down.read_bytes)).hexdigest()
        missing = await error_of(client.download_file(box, "/tmp/none", str(down)))
        directory_down = await error_of(client.download_file(box, "/tmp", str(down)))
        directory_up = await error_of(client.upload_bytes(box, "/tmp", b"x", "x"))
        slash = await error_of(client.upload_bytes(box, "/tmp/none/", b"x", "x"))
    written = await client.upload_bytes(box, "/tmp/small", b"0123456789", "small")
    return {
        "told": [told.success, told.size],
        "same": [inside.stdout.split()[0] == digest, back == digest],
        "missing": missing[0],
        "refused": [[each[0], each[-1]] for each in (directory_down, directory_up, slash)],
        "bytes": [written.size, (await client.execute_command(box, "cat /tmp/small")).stdout],
    }


async def reading(client: Any, box: str) -> dict[str, Any] | None:
    read = getattr(client, "read_file", None)
    if read is None:
        return None
    await client.upload_bytes(box, "/tmp/read", b"0123456789", "read")
    whole = await read(box, "/tmp/read")
    seen: dict[str, Any] = {
        "whole": [whole.content, whole.size],
        "missing": (await error_of(read(box, "/tmp/none")))[0],
    }
    if takes(read, "offset"):
        for offset, length in ((2, 3), (-4, 100), (8, 100), (50, 5)):
            part = await read(box, "/tmp/read", offset=offset, length=length)
            seen[f"{offset}+{length}"] = [part.content, part.offset, part.total_size, part.truncated]
        await client.execute_command(box, "truncate -s 20M /tmp/huge")
        seen["too large"] = (await error_of(read(box, "/tmp/huge")))[0]
    return seen
