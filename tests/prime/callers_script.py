"""Many commands at once in each of some sandboxes, as a trainer sends them. Run by the client's own Python.

`callers_script.py COUNT ID...` prints one JSON list: of each command that did not answer as it should, what came.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import prime_sandboxes as sdk  # type: ignore[import-not-found]


async def one(client: Any, box: str, number: int) -> str | None:
    try:
        told = await client.execute_command(
            box, f"echo {number} >> /tmp/ran; echo {number}", working_dir="/tmp", timeout=120
        )
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None if (told.stdout, told.exit_code) == (f"{number}\n", 0) else str(told)


async def main() -> None:
    count, boxes = int(sys.argv[1]), sys.argv[2:]
    async with sdk.AsyncSandboxClient() as client:
        told = await asyncio.gather(*(one(client, box, number) for box in boxes for number in range(count)))
    print(json.dumps([what for what in told if what is not None]))


if __name__ == "__main__":
    asyncio.run(main())
