"""Pools of a test's own beside that of the release, for what depends on a pool's policy or on who uses its pods."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sandlot import Client, Sandbox

from tests.kubernetes.boxes import until
from tests.kubernetes.killing import pool_is_warm_everywhere
from tests.kubernetes.stack import IMAGE, Stack

REPLACED = {"policy": "never"}  # the `reuse` of a pool whose pods end with their sandbox
# Seconds: a sandbox that lives longer in a reused pod gets a record, for which the pool starts another pod.
RECORDED_AFTER = 10.0
_SIZE: dict[str, Any] = {"cpu": 1, "memory": 384 << 20, "disk": 1 << 30}  # that no other pool has


@dataclass(frozen=True)
class OwnPool:
    stack: Stack
    name: str
    size: int

    def full(self) -> None:
        """Waits until all are ready at every gateway: a create that comes before a reset is done is no hit."""
        until(lambda: pool_is_warm_everywhere(self.stack, self.name, size=self.size), seconds=180)

    def pods(self) -> set[str]:
        selector = f"sandlot.dev/pool={self.name}"
        listed = self.stack.get("pods", "-n", self.stack.sandboxes, "-l", selector)["items"]
        return {pod["metadata"]["name"] for pod in listed}

    def create(self, client: Client) -> Sandbox:
        return Sandbox.create(IMAGE, client=client, pool=self.name, **_SIZE, wait=180)


@contextmanager
def own_pool(stack: Stack, name: str, *, size: int, **spec: Any) -> Iterator[OwnPool]:
    """A pool that is full; `spec`: what it says of itself beyond size and template."""
    body = {
        "apiVersion": "sandlot.dev/v1alpha1",
        "kind": "SandboxPool",
        "metadata": {"name": name, "namespace": stack.sandboxes},
        "spec": {"size": size, "template": {"image": IMAGE, **_SIZE}, **spec},
    }
    stack.kubectl("apply", "-f", "-", stdin=json.dumps(body))
    try:
        made = OwnPool(stack, name, size)
        made.full()
        yield made
    finally:
        stack.kubectl("delete", "sandboxpool", name, "-n", stack.sandboxes)
