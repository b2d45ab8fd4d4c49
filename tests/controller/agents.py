"""Node agents of a test: the real application of each node behind an address of its own, on an engine that is played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from sandlot_kube import paths
from sandlot_node import api
from sandlot_node.metrics import Metrics

from tests.controller.cluster import Cluster
from tests.node.agents import PlayedEngine, preparer_of
from tests.ports import free_port
from tests.waiting import until

TOKEN = "a token of the tests"


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class Agents:
    """The agents of a cluster's nodes, by node."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.port = free_port()
        self.token_file = directory / "agent-token"
        self.token_file.write_text(f"{TOKEN}\n")
        self.engines: dict[str, PlayedEngine] = {}
        self._cluster = cluster
        self._directory = directory

    @asynccontextmanager
    async def on(self, node: str, **options: Any) -> AsyncIterator[PlayedEngine]:
        """Run the agent of one node, with its pod in the API server."""
        number = len(self.engines) + 1
        address = f"127.0.0.{number + 1}"
        state = self._directory / f"agent-{number}"
        state.mkdir()
        engine = self.engines[node] = PlayedEngine(state)
        metrics = Metrics()
        preparer = preparer_of(engine, state, metrics=metrics, registries=(), **options)
        app = api.build(preparer, metrics, token=TOKEN, housekeeping=3600)
        config = uvicorn.Config(
            app, host=address, port=self.port, access_log=False, log_config=None, timeout_graceful_shutdown=1
        )
        server = _Server(config)
        serving = asyncio.create_task(server.serve())
        await until(lambda: server.started)
        name = f"node-agent-{number}"
        await self._pod(name, node=node, address=address)
        try:
            yield engine
        finally:
            engine.gate.set()
            await self._cluster.delete(paths.pods(self._cluster.namespace, name), gracePeriodSeconds=0)
            server.should_exit = True
            await serving

    async def _pod(self, name: str, *, node: str, address: str) -> None:
        labels = {"app.kubernetes.io/name": "sandlot", "app.kubernetes.io/component": "node-agent"}
        body = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"nodeName": node, "containers": [{"name": "node-agent", "image": "x"}]},
        }
        await self._cluster.client.request("POST", paths.pods(self._cluster.namespace), body=body)
        ready = [{"type": "Ready", "status": "True"}]
        await self._cluster.pod_says(
            name, phase="Running", podIP=address, podIPs=[{"ip": address}], conditions=ready
        )
