"""Plays gateways and operators over a real API server: makes pools and sandboxes, claims pods, ends and deletes."""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path
from typing import Any

from sandlot_controller.tokens import InstanceTokens
from sandlot_kube import clock, ends, paths
from sandlot_kube.client import MERGE_PATCH, KubeClient

from tests.controller.sidecars import FakeSidecars
from tests.controller.watched import Watched


class GatewayRequests(Watched):
    """What a controller sees the results of, in one namespace; `sidecars` are those of its pods."""

    def __init__(self, client: KubeClient, *, key_file: Path) -> None:
        super().__init__(client)
        self.key_file = key_file
        self.sidecars = FakeSidecars(self.pods, tokens=InstanceTokens.from_file(key_file))

    async def apply(self, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        """As `kubectl apply --server-side` does."""
        collection = paths.sandboxes if kind == "Sandbox" else paths.pools
        body = {
            "apiVersion": "sandlot.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        answer = await self.client.request(
            "PATCH",
            collection(self.namespace, name),
            params={"fieldManager": "test", "force": "true"},
            body=body,
            content_type="application/apply-patch+yaml",
        )
        return json.loads(answer)

    async def pool(self, name: str = "p", *, size: int, image: str = "python:3.12", **spec: Any) -> None:
        await self.apply("SandboxPool", name, {"template": {"image": image}, "size": size, **spec})

    async def sandbox(self, name: str, *, image: str = "python:3.12", **spec: Any) -> None:
        await self.apply("Sandbox", name, {"template": {"image": image}, **spec})

    async def claim(self, pod: str, *, record: bool = True, generation: int | None = None) -> str:
        """As a gateway does: at the sidecar first. `generation`: of a reused pod."""
        self.sidecars.claimed.add(pod)
        name = f"sbx-{secrets.token_hex(4)}"
        slot = {"podName": pod}
        if generation is not None:
            self.sidecars.owners[pod] = name
            self.sidecars.generations[pod] = generation
            slot |= {"generation": generation}
        if record:
            await self.sandbox(name, **slot, sandboxId=name, state="Running")
        return name

    def reset(self, pod: str) -> None:
        """As a gateway has it done."""
        self.sidecars.claimed.discard(pod)
        self.sidecars.owners.pop(pod, None)

    async def end(
        self, sandbox: str, verdict: str = "deleted", *, at: float | None = None, **more: Any
    ) -> None:
        """As a gateway does."""
        ended = ends.Ended(verdict, clock.text(time.time() if at is None else at), **more)
        await self.client.request(
            "PATCH",
            paths.sandboxes(self.namespace, sandbox) + "/status",
            body={"status": ends.status(ended)},
            content_type=MERGE_PATCH,
        )

    async def delete(self, path: str, **body: Any) -> None:
        await self.client.request("DELETE", path, body=body or None)
