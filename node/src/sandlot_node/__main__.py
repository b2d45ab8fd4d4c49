"""Entry point, `python -m sandlot_node`: reads settings from the environment, stops on SIGTERM and SIGINT."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import textwrap
import time
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn
from sandlot_contract import logs

from . import api
from .access import Access
from .adoption import adopt
from .containerd.client import Client
from .containerd.configuration import registries_path
from .containerd.engine import ContainerdEngine
from .failures import ImageError
from .ledger import Ledger
from .metrics import Metrics
from .mirrors.files import MirrorFiles
from .mirrors.mirrors import Mirrors
from .preparer import Preparer
from .requests import Limits
from .settings import BadSettings, Settings, load, token
from .state import State

_log = logging.getLogger(__name__)

_START_SECONDS = 300.0  # containerd may start after the agent
# Seconds that an idle connection stays open: longer than a gateway keeps one (60 and a quarter), which otherwise may
# send a call into a connection that was just closed, and take the agent for away.
_KEEP_ALIVE = 80
_STOPS = (signal.SIGTERM, signal.SIGINT)


def main() -> int:
    """Run the agent; return 0 after an orderly stop, 1 for a failure, 2 for bad settings."""
    argparse.ArgumentParser(
        prog="python -m sandlot_node",
        description="Prepare container images on this node. Settings come from the environment:",
        epilog=_settings_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    try:
        settings = load()
        secret = token(settings.token_file)
    except BadSettings as error:
        sys.stderr.write(f"sandlot_node: {error}\n")
        return 2
    logs.configure(settings.log_level)
    return asyncio.run(_run(settings, secret))


def _settings_help() -> str:
    lines: list[str] = []
    for name, field in Settings.model_fields.items():
        lines.append(f"SANDLOT_{name.upper()}{' (required)' if field.is_required() else ''}")
        lines.append(
            textwrap.fill(field.description or "", 100, initial_indent="    ", subsequent_indent="    ")
        )
    return "\n".join(lines)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which would end the process by the signal instead of exit status 0."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def _run(settings: Settings, secret: str) -> int:
    metrics = Metrics()
    files = MirrorFiles(settings.certs, owner=settings.mirror_owner)
    client = Client(str(settings.containerd))
    mirrors = Mirrors(
        settings.mirrors,
        files,
        metrics,
        seconds=settings.mirror_check,
        read_path=lambda: registries_path(client),
    )
    following = asyncio.create_task(mirrors.run())
    serving = asyncio.create_task(_serve(settings, secret, client, metrics, mirrors))

    def stop() -> None:
        # Both at once: a start may wait for containerd before it ends.
        following.cancel()
        serving.cancel()

    # A signal that ends the process at once would leave the files of registries on the node. The server replaces these.
    for number in _STOPS:
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        return await serving
    except asyncio.CancelledError:
        return 0
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await client.close()


async def _serve(settings: Settings, secret: str, client: Client, metrics: Metrics, mirrors: Mirrors) -> int:
    try:
        engine = ContainerdEngine(
            client,
            images=settings.images,
            snapshotter=settings.snapshotter,
            handler=settings.runtime_handler,
            server_of=mirrors.server_of,
            pull_seconds=settings.pull_timeout,
        )
        if not await _answers(engine):
            return 1
        preparer = Preparer(
            engine=engine,
            ledger=Ledger(budget=settings.budget, hold=settings.hold),
            access=Access(tag_seconds=settings.tag_ttl, tenant_seconds=settings.access_ttl),
            state=State(settings.state),
            limits=Limits(
                registries=settings.registries,
                pulls=settings.pulls,
                min_free=settings.min_free,
                use_grace=settings.use_grace,
            ),
            metrics=metrics,
        )
        await adopt(preparer, seconds=_START_SECONDS)
        app = api.build(preparer, metrics, token=secret, housekeeping=settings.housekeeping)
        server = _Server(
            uvicorn.Config(
                app,
                host=settings.host,
                port=settings.port,
                access_log=False,
                log_config=None,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=10,
            )
        )
        loop = asyncio.get_running_loop()
        for number in _STOPS:
            loop.add_signal_handler(number, server.handle_exit, number, None)
        await server.serve()
        return 0 if server.started else 1
    except ImageError as error:
        _log.error("could not adopt the images of this node: %s", error)
        return 1


async def _answers(engine: ContainerdEngine) -> bool:
    """Wait for containerd."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            await engine.free()
        except ImageError as error:
            if time.monotonic() > deadline:
                _log.error("containerd did not answer for %.0f s: %s", _START_SECONDS, error)
                return False
            await asyncio.sleep(1.0)
        else:
            return True


if __name__ == "__main__":
    sys.exit(main())
