"""A sidecar that runs as a container of a pod of gVisor's, without a network or with one of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from tests.cable import Cable
from tests.complaints import WARNINGS_SHOWN
from tests.executor.container import HOLDER_DIR
from tests.executor.gvisor import VOLUME_POINT, GvisorPod
from tests.kubernetes.network_attacks import UNDO
from tests.probe import PROBE
from tests.roots import make_root
from tests.sidecar.processes import gone
from tests.sidecar.support import Sidecar
from tests.sidecar.webhook_receiver import Receiver
from tests.web import ASK

PORT = 8700  # of a sidecar in a network of its own


class GvisorSidecar(Sidecar):
    """Runs as a container of the pod; its sockets are in a directory that both kernels see."""

    def __init__(self, pod: GvisorPod) -> None:
        self.pod = pod
        super().__init__(instance_id=pod.id, target=True, cgroup_parent=None)
        del self.config["target_pid"]
        self.images = Path(self.directory) / "images"
        self.config["root"] = {"mask": [HOLDER_DIR], "images": str(self.images)}
        if pod.volume is not None:
            self.config["root"] |= {"upper": VOLUME_POINT, "disk": pod.volume}

    async def launch(self) -> None:
        command = self.pod.command(
            argv=[sys.executable, "-m", "sandlot_sidecar", "--config-env"],
            env={
                "SANDLOT_SIDECAR_CONFIG": json.dumps(self.config),
                "PATH": os.environ["PATH"],
                **WARNINGS_SHOWN,
            },
            shared=self.directory,
        )
        with self.stderr.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"
            )

    def image(self, name: str, **fields: Any) -> dict[str, Any]:
        """The `image` of a claim, made after the pod has started."""
        root = make_root(self.images, name)
        return {"id": f"sha256:{name}", "lower": [str(root)], **fields}

    def about_end(self) -> str:
        return f"{self.pod.killed}; {self.pod.target_end()}"

    async def _nothing_left(self, tree: set[int]) -> None:
        await gone(tree)


class NetworkedGvisorSidecar(GvisorSidecar):
    """Speaks and listens on the pod's network, as in a cluster."""

    def __init__(self, pod: GvisorPod, net: Cable) -> None:
        super().__init__(pod)
        self.net = net
        self.webhooks = Receiver(self.webhooks.path, host=net.outside)
        self.config["listen"] = f"0.0.0.0:{PORT}"

    async def launch(self) -> None:
        self.config["webhook"] = f"http://{self.net.outside}:{self.webhooks.port}/internal/sidecar"
        await self.reconnect(f"http://{self.net.inside}:{PORT}")
        await super().launch()

    async def prepare(self) -> None:
        await self.claim()
        await self.call("PUT", "/v1/files?path=/probe.py", content=PROBE.encode())
        await self.call("PUT", "/v1/files?path=/ask.py", content=ASK.encode())

    async def put(self, *, allow: bool, rules: list[list[Any]]) -> httpx.Response:
        body = {"policy": {"rules": len(rules)}, "allow": allow, "rules": rules}
        return await self.instance("PUT", "/v1/egress", json=body)

    async def set(self, *, allow: bool, rules: list[list[Any]]) -> int:
        answer = await self.put(allow=allow, rules=rules)
        assert answer.status_code == 200, answer.text
        return answer.json()["generation"]

    async def reaches(self, *targets: str, seconds: int = 8) -> list[str]:
        """What each says first; `seconds` are how long silence takes."""
        lines = "".join(f"{each}\n" for each in targets)
        answer = await self.exec(f"python3 /probe.py {seconds}", stdin=lines)
        assert answer["exit_code"] == 0, answer
        return answer["stdout"].split()

    async def asks(self, *questions: str) -> list[str]:
        answer = await self.exec(
            "python3 /ask.py", stdin="".join(f"{each}\n" for each in questions), timeout=60
        )
        assert answer["exit_code"] == 0, answer
        return answer["stdout"].split()

    async def undo(self) -> list[str]:
        answer = await self.exec(["python3", "-c", UNDO], timeout=60)
        assert answer["exit_code"] == 0, answer
        return json.loads(answer["stdout"])


MakeBox = Callable[..., Awaitable[GvisorSidecar]]
