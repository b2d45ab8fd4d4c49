"""The sandbox that the executor builds for the instance: its setup, limits, network, reset and end."""

from __future__ import annotations

import os

from .. import kernel
from ..core.errors import SidecarError
from ..executor import wire
from . import log, readiness
from .container import ContainerMemory
from .environment import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..config import Config
    from .executor_client import ExecutorClient
    from .ops import Ops
    from .runners import Made, RunnerPool


class Sandbox:
    """The sandbox at the executor, whose failures methods raise as SidecarError."""

    def __init__(self, config: Config, executor: ExecutorClient) -> None:
        self._config = config
        self._executor = executor
        self.setup: dict[str, Any] = {}
        self.image: dict[str, Any] | None = None  # the one that a claim has laid; None: the config's root
        self.notes: list[str] = []
        self._unrecorded = False  # the fresh state of the image that was laid
        self.is_shared = False  # its root has files of another sandbox, which a reset would keep
        self._limits = {"disk": config.root.get("disk"), **config.limits}  # the template's
        # The template's, or those of a claim, also of one that failed. None while unknown, after a failure.
        self._in_force: dict[str, Any] | None = {"network": "full", "limits": self._limits}
        self.memory = ContainerMemory([])

    @property
    def takes_images(self) -> bool:
        """Whether a claim may name an image."""
        return bool(self.setup.get("overlay")) and self._config.root.get("images") is not None

    @property
    def image_id(self) -> str | None:
        """The identity of the root: the image's that a claim named, else the config's."""
        return self._config.root.get("id") if self.image is None else self.image["id"]

    async def build(self, *, image: dict[str, Any] | None, resume: bool) -> None:
        """Build the sandbox, over `image` if an earlier claim named one. `resume`: keep the owner's files."""
        config, self.image = self._config, image
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
        root = self._config.root if self.image is None else self._over(self.image)
        if self._config.target and "upper" not in root:
            root = {**root, "upper": os.path.join(self._config.state_dir, "upper")}
        return {**root, "resume": resume} if "upper" in root else root

    def _over(self, image: dict[str, Any]) -> dict[str, Any]:
        """Return what a root over this image is built from."""
        parts = {name: image[name] for name in ("lower", "workdir")}
        return {**self._config.root, **parts, "claimed": True}

    async def apply(self, claim: dict[str, Any], pool: RunnerPool, *, unused: bool) -> None:
        """Apply the claim's image, limits and network, unless they are in force.

        `unused`: this generation has had no owner. Then a new image may keep the runners; call `record` afterwards.
        A new root or network may kill the runners of `pool`, which begins anew with the caller's `open`.
        """
        conditions = self._conditions(claim)
        image = claim.get("image")  # an earlier version's record has none
        if image is not None and self._is_laid(image):
            image = None
        if image is None and conditions == self._in_force:
            return
        if image is not None:
            answer = await self._lay(image, conditions, pool, unused=unused)
        else:
            if self._in_force is None or self._in_force["network"] != claim["network"]:
                pool.rest()
            answer = await self._apply(conditions, over=None)
        self.notes += [note for note in answer.get("notes") or [] if note not in self.notes]

    def _is_laid(self, image: dict[str, Any]) -> bool:
        """Return whether the root is this image: an image that was prepared again has other directories."""
        if image["id"] != self.image_id:
            return False
        return self.image is None or image["lower"] == self.image["lower"]

    async def _lay(
        self, image: dict[str, Any], conditions: dict[str, Any], pool: RunnerPool, *, unused: bool
    ) -> dict[str, Any]:
        pool.pause()
        kept = False
        try:
            answer = await self._apply(conditions, over=self._over(image), unused=unused)
            kept = bool(answer.get("runners"))
        finally:
            if not kept:
                pool.rest()
        pool.tell({"laid": True})
        self._unrecorded = kept
        log.event("laid", exchanged=kept)
        self._has_laid(image, answer)
        return answer

    async def lay_shared(self, namespace: int, pool: RunnerPool) -> None:
        """Put the layer in a mount namespace above the image, before the owner's first command; then open `pool`."""
        conditions = self._in_force or self._conditions(None)
        self.is_shared = True
        pool.pause()
        kept = False
        try:
            answer = await self._apply(conditions, over=None, unused=True, shared=namespace)
            kept = bool(answer.get("runners"))
        finally:
            if not kept:
                pool.rest()
        pool.tell({"laid": True})
        log.event("laid", exchanged=kept, shared=True)
        self.setup["shell"] = answer.get("shell")
        self.notes += [note for note in answer.get("notes") or [] if note not in self.notes]

    async def record(self) -> None:
        """Have the executor record the state that a reset is compared with, before the owner's first command."""
        if self._unrecorded:
            self._unrecorded = False
            await self._executor.ask("record")

    async def lay_again(self, image: dict[str, Any] | None, pool: RunnerPool) -> None:
        """Lay an earlier image instead of a failed claim's; None is the config's root. `pool`: see `apply`."""
        pool.rest()
        root = self._config.root
        of_config = {"lower": root.get("lower") or ["/"], "workdir": root.get("workdir") or "/"}
        conditions = self._in_force or self._conditions(None)
        answer = await self._apply(conditions, over=self._over(of_config if image is None else image))
        self._has_laid(image, answer)
        self.notes = list(answer.get("notes") or [])

    async def _apply(
        self,
        conditions: dict[str, Any],
        *,
        over: dict[str, Any] | None,
        unused: bool = False,
        shared: int | None = None,
    ) -> dict[str, Any]:
        self._in_force = None
        answer, _ = await self._executor.ask(
            "apply", hostname=self._config.hostname, image=over, unused=unused, shared=shared is not None,
            attached=None if shared is None else [shared], **conditions,
        )  # fmt: skip
        self._in_force = conditions
        return answer

    def _has_laid(self, image: dict[str, Any] | None, answer: dict[str, Any]) -> None:
        self.image, self.notes, self.setup["shell"] = image, [], answer.get("shell")

    async def reset(self, claim: dict[str, Any] | None) -> tuple[dict[str, Any], Made | None]:
        """Reset the sandbox for its next owner; return the proof and, if it holds, the first runner."""
        conditions = self._conditions(claim)
        answer, fds = await self._executor.ask(
            "reset", descriptors=None, runner=True, prepared=claim is None, **conditions
        )
        self._in_force = conditions
        if not answer.get("equal"):
            wire.close_all(fds)
            return answer, None
        self.notes = list(answer.get("notes") or [])
        return answer, (answer["runner"], fds[0]) if fds else None

    async def check(self) -> None:
        """Have a sandbox without an owner compared with a fresh one, so that laying a claim's image need not."""
        await self._executor.ask("check")

    async def prepare_reset(self) -> None:
        """Have the next generation prepared, for nobody yet; its first command runs there, see `readiness`."""
        if not self.setup.get("overlay"):
            return
        shell, user = self.setup.get("shell") is not None, self._over_what()[1].get("user")
        first = readiness.probe(shell=shell, environment=self._environment(None), user=user)
        # As after a start: in a pod, a runner waits for the owner.
        await self._executor.ask("prepare", keep=self._config.target, **first, **self._conditions(None))

    async def end(self) -> None:
        """Take the sandbox down; a failure is logged."""
        if not self._executor.gone:
            try:
                await self._executor.ask("end")
            except SidecarError as error:
                log.failure("executor_end_failed", error)

    def prepare(self, ops: Ops, claim: dict[str, Any] | None) -> None:
        """Set the environment, working directory and user of commands, with or without an owner."""
        container, root = self._over_what()
        cpu = self._conditions(claim)["limits"].get("cpu")
        ops.environment = self._environment(claim)
        ops.max_starting = max(1 if kernel.is_gvisor() else 2, round(cpu or os.cpu_count() or 1))
        workdir = root.get("workdir") or container.get("workdir")
        ops.workdir = (claim["workdir"] if claim is not None else None) or workdir or "/"
        user = (
            claim.get("user") if claim is not None else None
        )  # absent in the claim of an older sidecar's state
        ops.user = root.get("user") if user is None else user

    def _over_what(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what the container says of commands, and what the root or the image of a claim does."""
        return (self.setup, self._config.root) if self.image is None else ({}, self.image)

    def _environment(self, claim: dict[str, Any] | None) -> dict[str, str]:
        container, root = self._over_what()
        cpu = self._conditions(claim)["limits"].get("cpu")
        return environment(
            image=container.get("env") or {},
            configured=root.get("env") or {},
            claim=claim,
            threads=cpu if self._config.target else None,
            gpus=(self._config.root.get("gpus") or {}).get("count", 0),
        )

    def _conditions(self, claim: dict[str, Any] | None) -> dict[str, Any]:
        """Return the network and limits of this owner; without one the template's limits and the last network.

        The next owner is of the same tenant and mostly wants the same: another network takes new processes.
        """
        if claim is None:
            network = "full" if self._in_force is None else self._in_force["network"]
            return {"network": network, "limits": self._limits}
        return {"network": claim["network"], "limits": {**self._limits, **claim["limits"]}}

    def close(self) -> None:
        self.memory.close()
