"""A sandbox, a command with its output, a file, input and a cell by a Python SDK of E2B: MODULE sync|async."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
from typing import Any

MODULE, HALF = sys.argv[1:]
sdk = importlib.import_module(MODULE)


async def value(found: Any) -> Any:
    """What a call of either half returns."""
    return await found if inspect.isawaitable(found) else found


async def main() -> None:
    kind = sdk.AsyncSandbox if HALF == "async" else sdk.Sandbox
    box = await value(kind.create(timeout=120, envs={"HOME": "/tmp"}))
    assert await value(box.is_running())
    lines: list[str] = []
    done = await value(box.commands.run("echo out; echo err >&2; pwd", cwd="/tmp", on_stdout=lines.append))
    assert (done.stdout, done.stderr, "".join(lines)) == ("out\n/tmp\n", "err\n", "out\n/tmp\n")
    large = os.urandom(1 << 20)
    await value(box.files.write("/tmp/transport/large", large))
    assert bytes(await value(box.files.read("/tmp/transport/large", format="bytes"))) == large
    cat = await value(box.commands.run("cat", background=True, stdin=True))
    await value(box.commands.send_stdin(cat.pid, "typed\n"))
    await value(box.commands.close_stdin(cat.pid))
    assert (await value(cat.wait())).stdout == "typed\n"
    if hasattr(box, "run_code"):
        cell = await value(box.run_code("print('shown')\n6 * 7"))
        assert (cell.text, cell.logs.stdout) == ("42", ["shown\n"])
    assert await value(box.kill())
    assert not await value(box.is_running())
    print(f"{os.environ['E2B_SANDBOX_URL']}: all of it")


asyncio.run(main())
