"""The sandbox that the executor builds for the instance: its setup, limits, network, reset and end."""

from __future__ import annotations

import os

from .. import kernel
from ..core.errors import SidecarError
from ..executor import wire
from . import log
from .container import ContainerMemory
from .environment import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..config import Config
    from .executor_client import ExecutorClient
    from .ops import Ops
    from .runners import Made


class Sandbox:
    """The sandbox at the executor, whose failures methods raise as SidecarError."""

    def __init__(self, config: Config, executor: ExecutorClient) -> None:
        self._config = config
        self._executor = executor
        self.setup: dict[str, Any] = {}
        self.notes: list[str] = []
        self.memory = ContainerMemory([])

    async def build(self, *, resume: bool) -> None:
        """Build the sandbox. `resume`: keep the owner's files from before a restart."""
        config = self._config
        self._executor.start()
        self.setup, counters = await self._executor.ask(
            "setup", descriptors=None, root=self._root(resume=resume), target_pid=config.target_pid,
            hostname=config.hostname, target=config.instance_id if config.target else None, limits=config.limits,
            cgroup_parent=config.cgroup_parent,
        )  # fmt: skip
        self.memory = ContainerMemory(counters)
        self.notes = list(self.setup.get("notes") or [])

    def _root(self, *, resume: bool) -> dict[str, Any]:
        """Return what the root is built from; in a pod, its changes go to the state directory."""
        root = self._config.root
        if self._config.target and "upper" not in root:
            root = {**root, "upper": os.path.join(self._config.state_dir, "upper")}
        return {**root, "resume": resume} if "upper" in root else root

    async def apply(self, claim: dict[str, Any]) -> None:
        """Apply the claim's limits and network, where they differ from the template's."""
        template = {"disk": self._config.root.get("disk"), **self._config.limits}
        limits = {name: value for name, value in claim["limits"].items() if template.get(name) != value}
        if limits or claim["network"] != "full":
            answer, _ = await self._executor.ask(
                "apply", hostname=self._config.hostname, **self._conditions(claim)
            )
            self.notes += [note for note in answer.get("notes") or [] if note not in self.notes]

    async def reset(self, claim: dict[str, Any] | None) -> tuple[dict[str, Any], Made | None]:
        """Reset the sandbox for its next owner; return the proof and, if it holds, the first runner."""
        answer, fds = await self._executor.ask(
            "reset", descriptors=None, runner=True, **self._conditions(claim)
        )
        if not answer.get("equal"):
            wire.close_all(fds)
            return answer, None
        self.notes = list(answer.get("notes") or [])
        return answer, (answer["runner"], fds[0]) if fds else None

    async def end(self) -> None:
        """Take the sandbox down; a failure is logged."""
        if not self._executor.gone:
            try:
                await self._executor.ask("end")
            except SidecarError as error:
                log.failure("executor_end_failed", error)

    def prepare(self, ops: Ops, claim: dict[str, Any] | None) -> None:
        """Set the environment, working directory and user of commands, with or without an owner."""
        config, root = self._config, self._config.root
        cpu = self._conditions(claim)["limits"].get("cpu")
        ops.environment = environment(
            image=self.setup.get("env") or {},
            configured=root.get("env") or {},
            claim=claim,
            threads=cpu if config.target else None,
        )
        ops.max_starting = max(1 if kernel.is_gvisor() else 2, round(cpu or os.cpu_count() or 1))
        workdir = root.get("workdir") or self.setup.get("workdir")
        ops.workdir = (claim["workdir"] if claim is not None else None) or workdir or "/"
        ops.user = root.get("user")

    def _conditions(self, claim: dict[str, Any] | None) -> dict[str, Any]:
        """Return the network and limits of this owner, or the template's without one."""
        if claim is None:
            return {"network": "full", "limits": self._config.limits}
        return {"network": claim["network"], "limits": {**self._config.limits, **claim["limits"]}}

    def close(self) -> None:
        self.memory.close()
