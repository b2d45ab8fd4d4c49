"""The watches of one namespace: Sandbox, SandboxPool, the sandboxes' pods and the node agents' pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from sandlot_contract.names import NODE_AGENT_PODS, SANDBOX_PODS
from sandlot_kube import paths
from sandlot_kube.client import KubeClient
from sandlot_kube.objects import Pod, Sandbox, SandboxPool
from sandlot_kube.reflector import Reflector

from .node_agents import NodeAgents
from .pods import Pods
from .pools import Pools
from .records import Records
from .usage import KubernetesUsage

T = TypeVar("T")


class Watches:
    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        sandboxes: Records,
        pools: Pools,
        pods: Pods,
        agents: NodeAgents | None,
        usage: KubernetesUsage,
    ) -> None:
        self._sandboxes = Reflector(
            client,
            paths.sandboxes(namespace),
            item=Sandbox,
            replaced=_both(usage.replaced, sandboxes.replaced),
            changed=_both(usage.changed, sandboxes.changed),
            deleted=_both(usage.deleted, sandboxes.deleted),
            listing=sandboxes.listing,
        )
        self._pools = Reflector(
            client,
            paths.pools(namespace),
            item=SandboxPool,
            replaced=pools.replaced,
            changed=pools.changed,
            deleted=pools.deleted,
            listing=pools.listing,
        )
        self._pods = Reflector(
            client,
            paths.pods(namespace),
            item=Pod,
            params={"labelSelector": SANDBOX_PODS},
            replaced=pods.replaced,
            changed=pods.changed,
            deleted=pods.deleted,
            listing=pods.listing,
        )
        self._all: tuple[Reflector[Any], ...] = (self._sandboxes, self._pools, self._pods)
        if agents is not None:
            agents_pods = Reflector(
                client,
                paths.pods(namespace),
                item=Pod,
                params={"labelSelector": NODE_AGENT_PODS},
                replaced=agents.replaced,
                changed=agents.changed,
                deleted=agents.deleted,
            )
            self._all = (*self._all, agents_pods)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(reflector.run()) for reflector in self._all]

    async def synced(self, *, timeout: float) -> bool:
        """Wait for the first lists; return whether all came within `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                for reflector in self._all:
                    await reflector.synced.wait()
        except TimeoutError:
            return False
        return True

    @property
    def sandboxes_synced(self) -> bool:
        return self._sandboxes.synced.is_set()

    @property
    def all_show(self) -> bool:
        """Return whether all Sandboxes are known, and no watch is broken at the moment."""
        return self.sandboxes_synced and self.failure is None

    @property
    def failure(self) -> str | None:
        """Why a watch is broken at the moment; None if all work."""
        return next((reflector.failure for reflector in self._all if reflector.failure is not None), None)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _both(first: Callable[[T], None], second: Callable[[T], None]) -> Callable[[T], None]:
    def call(argument: T) -> None:
        first(argument)
        second(argument)

    return call
