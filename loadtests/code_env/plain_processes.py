"""The floor: what takes the place of the sandbox's client, and runs the same commands as plain processes of this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Also that of a local stack's sandboxes (loadtests/load/local_place.py), so that both run the same Python: with that of a
# shell, `python` may be a script that looks for one, which takes ten times as long as the test.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Made:
    id: str


@dataclass(frozen=True)
class Ended:
    stdout: str
    exit_code: int


class PlainProcesses:
    """The part of prime-sandboxes' client that the environment uses; a "sandbox" is a folder."""

    async def create(self, request: Any) -> Made:
        return Made(tempfile.mkdtemp(prefix="sandlot-floor-"))

    async def wait_for_creation(self, sandbox_id: str) -> None:
        return

    async def upload_bytes(self, sandbox_id: str, path: str, data: bytes, filename: str) -> None:
        (Path(sandbox_id) / filename).write_bytes(data)

    async def execute_command(
        self, sandbox_id: str, command: str, *, working_dir: str, timeout: float
    ) -> Ended:
        process = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            command,
            cwd=sandbox_id,
            env={"PATH": PATH},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(timeout):
                stdout, _ = await process.communicate()
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        assert process.returncode is not None
        return Ended(stdout.decode(errors="replace"), process.returncode)

    async def delete(self, sandbox_id: str) -> None:
        shutil.rmtree(sandbox_id, ignore_errors=True)

    def teardown(self) -> None:
        return
