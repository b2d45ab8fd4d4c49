"""The gateway's data plane over stub sidecars: real ASGI server, tokens, breaker and metrics, no sandboxes."""

from __future__ import annotations

import argparse
import cProfile
import gc
import signal
import socket
import sys
from pathlib import Path

import uvicorn
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.statuses import Status
from sandlot_gateway.data.breaker import Limits
from sandlot_gateway.data.expose import Exposures
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.data.routes import Route
from sandlot_gateway.data.server import OneWriteProtocol
from sandlot_gateway.data_plane import DataPlane
from sandlot_gateway.metrics import Metrics
from sandlot_gateway.sidecar_tls import SidecarTls
from sandlot_gateway.tokens import Tokens

from loadtests.gateway.stub_sidecars import addresses

KEY = b"the key of the load test, no secret"


class Directory:
    """A fixed set of routes."""

    def __init__(self, routes: dict[str, Route]) -> None:
        self._routes = routes

    def find(self, sandbox_id: str) -> Route | None:
        return self._routes.get(sandbox_id)

    async def wait_ready(self, sandbox_id: str, timeout: float) -> Route | None:
        return self._routes.get(sandbox_id)

    def may_come(self, sandbox_id: str) -> bool:
        return False

    def touched(self, sandbox_id: str) -> None:
        pass


class NoKeys:
    def tenant(self, key: str) -> str | None:
        return None


def build(upstreams: list[str], *, sandboxes: int, tls: Path | None = None) -> DataPlane:
    """Build a data plane with `sandboxes` routes, spread over the upstreams in turn; `tls`: files for encrypted ones."""
    tokens = Tokens(KEY)
    routes: dict[str, Route] = {}
    for n in range(sandboxes):
        sandbox_id, instance_id = SandboxId(f"sb-{n:06d}"), InstanceId(f"i-{n:016x}")
        address = upstreams[n % len(upstreams)]
        routes[sandbox_id] = Route(
            sandbox_id, "default", address, tokens.sandbox(instance_id, 1, sandbox_id), Status.RUNNING
        )
    metrics = Metrics()
    directory = Directory(routes)
    pool = HttpPool(observer=metrics, tls=None if tls is None else SidecarTls(tls))
    exposures = Exposures(routes=directory, pool=pool)
    return DataPlane(
        routes=directory,
        tokens=tokens,
        api_keys=NoKeys(),
        pool=pool,
        metrics=metrics,
        exposures=exposures,
        limits=Limits(),
    )


class Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        print("ready", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", type=int, default=18642)
    parser.add_argument("--upstreams", type=int, default=1000)
    parser.add_argument("--sandboxes", type=int, default=10_000)
    parser.add_argument("--unix", type=Path, default=None)
    parser.add_argument("--port", type=int, default=18700)
    parser.add_argument("--address", action="append", help="of a sidecar, in place of those of stubs")
    parser.add_argument("--tls", type=Path, default=None, help="directory of files for encrypted sidecars")
    parser.add_argument(
        "--profile", type=Path, default=None, help="write cProfile statistics here at the end"
    )
    arguments = parser.parse_args()
    plane = build(
        arguments.address or addresses(arguments.upstreams, directory=arguments.unix, port=arguments.port),
        sandboxes=arguments.sandboxes,
        tls=arguments.tls,
    )
    config = uvicorn.Config(
        plane,
        host="127.0.0.1",
        port=arguments.listen,
        loop="uvloop",
        http=OneWriteProtocol,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        access_log=False,
        server_header=False,
        date_header=False,
        log_level="warning",
        backlog=4096,
    )
    server = Server(config)
    # uvicorn raises the signal that ended it again; without this handler the profile would be lost.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if arguments.profile is None:
        server.run()
        return
    profile = cProfile.Profile()
    try:
        profile.runcall(server.run)
    finally:
        profile.dump_stats(arguments.profile)


if __name__ == "__main__":
    main()
