"""A sidecar that runs as a container of a pod of gVisor's."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from tests.complaints import WARNINGS_SHOWN
from tests.executor.container import HOLDER_DIR
from tests.executor.gvisor import VOLUME_POINT, GvisorPod
from tests.sidecar.processes import gone
from tests.sidecar.support import Sidecar


class GvisorSidecar(Sidecar):
    """Runs as a container of the pod; its sockets are in a directory that both kernels see."""

    def __init__(self, pod: GvisorPod) -> None:
        self.pod = pod
        super().__init__(instance_id=pod.id, target=True, cgroup_parent=None)
        del self.config["target_pid"]
        self.config["root"] = {"mask": [HOLDER_DIR]}
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

    def about_end(self) -> str:
        return self.pod.killed

    async def _nothing_left(self, tree: set[int]) -> None:
        await gone(tree, timeout=30.0)
