"""A gateway in a process of its own, killed with two sandboxes and a third in the middle of its start."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from sandlot_gateway.backends.local.processes import command_lines

from tests.local.conftest import Machine
from tests.waiting import until_empty

KILLED_GATEWAY = """
import asyncio, json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.local.gateway import Gateway
from sandlot_gateway.core.backend import Template
async def main():
    gateway = await Gateway(Path(sys.argv[1])).__aenter__()
    instances = [await gateway.backend.launch(Template("host", memory=256 << 20)) for _ in range(2)]
    for instance in instances:
        await gateway.until_ready(instance)
    # A third one in the middle of its start.
    task = asyncio.ensure_future(gateway.backend.launch(Template("host", memory=256 << 20)))
    await asyncio.sleep(0)
    print(json.dumps([instance.id for instance in instances]), flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


async def kill_a_gateway(machine: Machine) -> list[str]:
    program = KILLED_GATEWAY.encode()
    here = str(Path(__file__).parents[2])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED_GATEWAY, str(machine.directory), here), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    ids = json.loads(await asyncio.wait_for(process.stdout.readline(), 100))
    process.kill()
    await process.wait()
    # The third one's process may be on its way from the gateway's program to its own.
    await until_empty(lambda: [pid for pid, arguments in command_lines() if program in arguments])
    return ids
