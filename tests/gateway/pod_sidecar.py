"""The sidecar of one pod: a real process at a loopback address of its own, which is its pod's IP, on port 8700."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import json
import os
import shutil
import sys
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from sandlot_kube.template import Template, key

from tests import plain_http
from tests.ports import address
from tests.stopped import stopped

_numbers = itertools.count(1)


def next_address() -> str:
    """A loopback address that no other pod of this process has."""
    return address(next(_numbers))


class Sidecar:
    """Runs one sidecar at one address, over the root `lower`. Without a `webhook` it tells nobody anything."""

    def __init__(
        self,
        *,
        instance_id: str,
        token: str,
        template: Template,
        webhook: str | None,
        images: Path | None = None,
        lower: Path = Path("/"),
    ) -> None:
        self.ip = next_address()
        self.instance_id = instance_id
        self.directory = tempfile.mkdtemp(prefix="ks-", dir="/tmp")
        root = {
            "lower": [str(lower)],
            "mask": [],
            "overlay": True,
            "disk": 64 << 20,
            "workdir": "/",
            "user": "root",
        }
        if images is not None:
            root["images"] = str(images)
        self.config = {
            "instance_id": instance_id,
            "token": token,
            "listen": f"{self.ip}:8700",
            "state_dir": self.directory,
            "webhook": webhook,
            "heartbeat": 1.0,
            "template": key(template),
            "root": {**root, "env": {}},
            "limits": {"cpu": template.cpu, "memory": template.memory, "pids": template.pids},
        }
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()  # an end that comes meanwhile is of the process that is on its way

    async def start(self) -> None:
        async with self._starting:
            await self._start()

    async def _start(self) -> None:
        path = Path(self.directory) / "config.json"
        path.write_text(json.dumps(self.config))
        path.chmod(0o600)
        with (Path(self.directory) / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "sandlot_sidecar", "--config", str(path)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={name: value for name, value in os.environ.items() if name != "POD_IP"},
            )

    async def ask_end(self, verdict: str) -> None:
        """As a gateway does."""
        headers = {"Authorization": f"Bearer {self.config['token']}"}
        async with plain_http.async_client(
            base_url=f"http://{self.config['listen']}", headers=headers
        ) as client:
            (await client.post("/v1/end", json={"verdict": verdict})).raise_for_status()

    def word(self, event: str, **fields: Any) -> dict[str, Any]:
        """Content and headers of a webhook of it."""
        document = {"event": event, "instance_id": self.instance_id, "generation": 1, **fields}
        body = json.dumps(document).encode()
        signature = hmac.new(str(self.config["token"]).encode(), body, "sha256").hexdigest()
        sender = hmac.new(str(self.config["token"]).encode(), b"webhook", "sha256").hexdigest()
        headers = {
            "X-Sandlot-Instance": self.instance_id,
            "X-Sandlot-Sender": sender,
            "X-Sandlot-Signature": f"sha256={signature}",
        }
        return {"content": body, "headers": headers}

    @property
    def runs(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.returncode is None

    def stopped(self) -> AbstractContextManager[None]:
        """For the block it runs no instruction."""
        assert self._process is not None
        return stopped(self._process.pid)

    async def wait(self) -> int:
        """Its exit code."""
        assert self._process is not None
        return await self._process.wait()

    async def end(self) -> None:
        """As a kubelet does: SIGTERM, then SIGKILL."""
        async with self._starting:
            if self._process is None:
                return
        if self._process.returncode is None:
            self._process.terminate()
            try:
                async with asyncio.timeout(10):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        self._process = None
        shutil.rmtree(self.directory, ignore_errors=True)
