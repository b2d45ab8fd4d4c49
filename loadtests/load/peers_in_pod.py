"""Uploads other systems' agents into sandboxes without this machine's files, and calls them from inside.

The caller is in the same sandbox, so that no network slows a peer; Sandlot is called through the gateway.
"""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from pathlib import Path

from sandlot import AsyncSandbox

from loadtests.load.baselines import Taken
from loadtests.load.peers import START_SECONDS, TOKEN, Peer, PeerFailed
from loadtests.load.profile import Baseline
from tests.ports import free_port

HOME = "/tmp/peer"
# Runs a console script by its entry point, because an installed script's first line names its original Python.
_PROGRAM = """
import sys
from importlib.metadata import entry_points

(program,) = entry_points(group="console_scripts", name=sys.argv[1])
sys.argv = sys.argv[1:]
program.load()()
"""
_CALLER = """
import http.client, json, sys, time

port, token, patience, seconds, body = sys.argv[1:]
headers = {"X-API-Key": token, "Content-Type": "application/json"}
patience = time.monotonic() + float(patience)
while True:
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
    try:
        connection.request("GET", "/is_alive", headers=headers)
        if connection.getresponse().read() is not None:
            break
    except OSError:
        if time.monotonic() > patience:
            sys.exit("it did not answer")
        time.sleep(0.1)


def call():
    begun = time.perf_counter()
    connection.request("POST", "/execute", body, headers)
    answer = connection.getresponse()
    told = json.loads(answer.read())
    if answer.status != 200 or told.get("exit_code") != 0:
        sys.exit(f"{answer.status}: {told}")
    return time.perf_counter() - begun


call()
end = time.monotonic() + float(seconds)
times = []
while not times or time.monotonic() < end:
    times.append(call())
print(json.dumps(times))
"""


async def measure(found: Taken, plan: Baseline, box: AsyncSandbox, peer: Peer) -> None:
    """Measure one caller; many would share the sandbox's cores with the agent."""
    packed = await asyncio.to_thread(_packed, peer.environment())
    await box.files.write(f"{HOME}.tar", packed)
    await _run(box, ["sh", "-c", f"mkdir {HOME} && tar -xf {HOME}.tar -C {HOME} && rm {HOME}.tar"])
    port = free_port()  # local sandboxes share the machine's network
    program = ["python3", "-c", _PROGRAM, peer.program, *peer.arguments(port=port)]
    async with await box.start(program, stdin=False, env={"PYTHONPATH": HOME}) as process:
        body = json.dumps(peer.request(plan.command))
        words = [str(port), TOKEN, str(START_SECONDS), str(plan.seconds), body]
        calling = asyncio.create_task(_run(box, ["python3", "-c", _CALLER, *words]))
        ended = asyncio.create_task(process.wait())
        try:
            await asyncio.wait((calling, ended), return_when=asyncio.FIRST_COMPLETED)
            if not calling.done():
                result = ended.result()
                raise PeerFailed(
                    f"{peer.program} ended with {result.exit_code}: {result.stderr.strip()[-100:]}"
                )
            found.times += json.loads(calling.result())
        finally:
            for task in (calling, ended):
                task.cancel()
            await asyncio.gather(calling, ended, return_exceptions=True)


async def _run(box: AsyncSandbox, command: list[str]) -> str:
    result = await box.exec(command, timeout=START_SECONDS * 3)
    if not result.ok:
        raise PeerFailed((result.stderr or result.stdout).strip()[-200:] or result.verdict)
    return result.stdout


def _packed(python: Path) -> bytes:
    """Pack the packages of an environment into an archive for one folder, without bytecode."""

    def source(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if Path(entry.name).name == "__pycache__" else entry

    (packages,) = python.parent.parent.glob("lib/python*/site-packages")
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.add(packages, arcname=".", filter=source)
    return made.getvalue()
