"""A sidecar beside a container of runc's, with its config from the environment, as in a pod."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from tests.complaints import WARNINGS_SHOWN
from tests.executor.container import HOLDER_DIR, Container
from tests.ports import free_port
from tests.sidecar.processes import gone
from tests.sidecar.support import Sidecar

POD_IP = "10.244.1.7"


class PodSidecar(Sidecar):
    """Listens on TCP and is told everything by its environment."""

    def __init__(self, container: Container, **config: Any) -> None:
        self.container = container
        self.port = free_port()
        super().__init__(
            instance_id=container.id,
            target=True,
            listen=f"127.0.0.1:{self.port}",
            cgroup_parent=None,
            **config,
        )
        del self.config["target_pid"]
        self.config["root"] = {"mask": [HOLDER_DIR]}
        self.config["state_dir"] = f"{self.directory}/state"
        os.mkdir(self.config["state_dir"])

    async def launch(self) -> None:
        await self.reconnect(f"http://127.0.0.1:{self.port}")
        environment = {
            "SANDLOT_SIDECAR_CONFIG": json.dumps(self.config),
            "POD_IP": POD_IP,
            "PATH": os.environ["PATH"],
            **WARNINGS_SHOWN,
        }
        with self.stderr.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "sandlot_sidecar", "--config-env",
                env=environment, stderr=log, stdout=log, cwd="/",
            )  # fmt: skip

    async def _nothing_left(self, tree: set[int]) -> None:
        await gone(tree)
