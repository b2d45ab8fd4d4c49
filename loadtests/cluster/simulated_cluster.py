"""A cluster of simulated nodes for one load test: a real API server with etcd, kwok's nodes and pods, stubs as sidecars,
real gateways and a real controller.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from sandlot_kube.client import KubeClient

from loadtests import own_network
from loadtests.cluster import control_plane, parts
from loadtests.cluster.control_plane import ROOM, api_server, missing
from loadtests.cluster.pod_exits import pod_exits
from loadtests.cluster.pod_watch import PodWatch
from loadtests.cluster.sidecar_process import Sidecars, sidecars
from loadtests.cluster.stub_pods import StubPods
from loadtests.own_network import in_own_network
from loadtests.reading import Reading
from tests.kube.apiserver import ApiServer

ANY_POD = Path(__file__).with_name("kwok-stages-simulated.yaml")  # for pods of the controller
ANNOTATED = Path(__file__).with_name("kwok-stages.yaml")  # for pods that name their address
SCHEDULED = ("kwok", "kube-scheduler")


def why_not(*programs: str) -> str | None:
    """Return why it cannot run here, or None. The pods use all of loopback, which needs a network namespace."""
    return missing(*(programs or SCHEDULED)) or own_network.missing()


async def measured(
    work: Callable[[SimulatedCluster], Awaitable[dict[str, Reading]]],
    *,
    name: str,
    what: str,
    longest: float,
    programs: Sequence[str] = SCHEDULED,
) -> dict[str, Reading]:
    """Do the work with a cluster in a network namespace of its own, `name` in the names of its namespace.

    Raises RuntimeError where it cannot run, or if `what` takes longer than `longest` seconds.
    """
    if why := why_not(*programs):
        raise RuntimeError(why)

    async def run() -> dict[str, Reading]:
        async with simulated_cluster(name) as cluster:
            return await work(cluster)

    try:
        async with asyncio.timeout(longest):
            return await in_own_network(run)
    except TimeoutError as error:
        raise RuntimeError(f"{what} were not done in {longest:g} s") from error


@asynccontextmanager
async def simulated_cluster(name: str) -> AsyncIterator[SimulatedCluster]:
    """Run an API server with a new namespace; what is started in the cluster ends with it, the last one first."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sandlot-kwok-")))
        server = stack.enter_context(api_server(directory))
        client = KubeClient(server.access(), patience=60.0)  # its API server has the machine with the load
        stack.push_async_callback(client.close)
        yield SimulatedCluster(directory, server, client, server.namespace(name), stack)


@dataclass(frozen=True, slots=True)
class SimulatedCluster:
    directory: Path
    server: ApiServer
    client: KubeClient
    namespace: str
    stack: AsyncExitStack

    async def make_nodes(self, count: int, *, room: Mapping[str, str] = ROOM) -> None:
        """Create nodes; none is ready before kwok runs."""
        await control_plane.make_nodes(self.client, count, room=room)

    def start_kwok(self, *, stages: Path = ANY_POD, at_once: int = 4) -> None:
        """Let nodes get ready, and so many bound pods at a time run."""
        self.stack.enter_context(
            control_plane.kwok(self.directory, self.server, stages=stages, at_once=at_once)
        )

    def start_scheduler(self) -> None:
        self.stack.enter_context(control_plane.scheduler(self.directory, self.server))

    def start_controller_manager(self, *controllers: str) -> psutil.Process:
        """Run these controllers of Kubernetes."""
        manager = control_plane.controller_manager(self.directory, self.server, controllers=controllers)
        return psutil.Process(self.stack.enter_context(manager).pid)

    async def start_stubs(self, *, pods_end: bool = True) -> PodWatch:
        """Serve the sidecars of all pods, in this process.

        A pod is over when its sidecar has ended. Not with `pods_end=False`: how many of them the controller sees
        before it deletes them by its batch depends on how busy the machine is.
        """
        stub = StubPods(master=parts.MASTER)
        if pods_end:
            exits = await self.stack.enter_async_context(pod_exits(self.client, self.namespace))
            stub = StubPods(master=parts.MASTER, exited=exits)
        await self.stack.enter_async_context(stub.listening())
        return await self.stack.enter_async_context(PodWatch(stub).following(self.client, self.namespace))

    async def start_stub_processes(self, *, webhooks: str) -> Sidecars:
        """Serve the sidecars of all pods, in processes of their own: for more connections than one may have.

        They send webhooks to this URL.
        """
        running = sidecars(self.directory, self.server, self.namespace, webhooks=webhooks)
        return await self.stack.enter_async_context(running)

    async def start_gateway(self, *, agents: bool = False, options: Sequence[str] = ()) -> parts.Part:
        """Run one gateway, see `parts.gateway`."""
        home = self.directory / "gateway"
        return await self.stack.enter_async_context(
            parts.gateway(home, self.server, self.namespace, agents=agents, options=options)
        )

    async def start_controller(
        self, *, retention: float, slots: bool = False, settings: Mapping[str, str] | None = None
    ) -> parts.Part:
        """Run the controller, see `parts.controller`."""
        home = self.directory / "controller"
        running = parts.controller(
            home, self.server, self.namespace, retention=retention, slots=slots, settings=settings
        )
        return await self.stack.enter_async_context(running)
