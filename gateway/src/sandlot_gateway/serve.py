"""Runs a gateway and its sockets until it is asked to stop."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import resource
import secrets
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import uvicorn
from sandlot_contract.keyring import KeyringFiles

from sandlot_gateway.app import Gateway
from sandlot_gateway.atomic_file import write_atomic
from sandlot_gateway.backends.local.gpu_models import is_type
from sandlot_gateway.backends.local.layout import check_length
from sandlot_gateway.backends.local.lock import StateLock
from sandlot_gateway.control.audit import STDOUT
from sandlot_gateway.core.backend import Backend
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.data.server import protocol
from sandlot_gateway.ending import LAST_ANSWERS, EndRequests, drain, leave, started, stop, until_end
from sandlot_gateway.events.webhooks.service import secret_files
from sandlot_gateway.followed_file import FollowedFile
from sandlot_gateway.keyfile import KeyFile
from sandlot_gateway.keys import Keys
from sandlot_gateway.masterkey import secret_file
from sandlot_gateway.metrics import ReloadedFile
from sandlot_gateway.parts import MakeBackend
from sandlot_gateway.prices import PriceList
from sandlot_gateway.quotas import Limits, Quotas
from sandlot_gateway.settings import Settings
from sandlot_gateway.stop_times import StopTimes
from sandlot_gateway.tasks import Tasks
from sandlot_gateway.tls import TlsServer
from sandlot_gateway.tokens import Tokens
from sandlot_gateway.uvicorn_server import Server, WebSocket

_log = logging.getLogger(__name__)

# 1,000 concurrent commands of one client are as many connections; a backlog of 128 refused a seventh of them.
_BACKLOG = 4096
# Seconds that an idle connection stays open: longer than clients (httpx 5, aiohttp 15) and load balancers (60) keep
# theirs. The caller must close first, or it may send a request into a connection that was just closed.
KEEP_ALIVE = 75


async def serve(
    settings: Settings,
    *,
    make_backend: MakeBackend | None = None,
    requests: EndRequests | None = None,
    announce: Callable[[Gateway, str], None] | None = None,
) -> int:
    """Serve until idle, or until SIGTERM, SIGINT (or `requests` in their place); return the exit status.

    A second signal ends the start, or the waits for requests and pending creates, and shortens those of the stop, also
    of one that is under way.

    `announce` gets the URL, instead of stdout. Raises BackendError, BadKeys, BadContent, BadTargets, OSError if it cannot start.
    """
    state_dir = settings.state_dir = settings.state_dir.expanduser().absolute()
    check_length(state_dir)
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = StateLock(state_dir / "gateway.lock")
    lock.acquire()
    endpoint = state_dir / "endpoint.json"
    try:
        file = KeyFile(settings.api_keys_file) if settings.api_keys_file is not None else None
        fixed, filed = _key_entries(settings, file=file)
        keys = Keys([*fixed, *filed])
        quotas = Quotas(
            Limits(sandboxes=settings.max_sandboxes, checkpoint_bytes=settings.checkpoint_tenant_bytes)
        )
        prices = PriceList(is_type) if settings.backend == "local" else PriceList()
        reloaded: dict[ReloadedFile, FollowedFile] = {}
        if settings.quotas_file is not None:
            reloaded["quotas"] = FollowedFile(settings.quotas_file, "quotas", quotas.replace)
        if settings.prices_file is not None:
            reloaded["prices"] = FollowedFile(settings.prices_file, "prices", prices.replace)
        listening = _listen_tcp(settings.host, settings.port)
        # Sandboxes can reach this port, clients the other.
        webhooks = (
            _listen_unix(state_dir / "gateway.sock")
            if settings.backend == "local"
            else _listen_tcp(settings.host, settings.webhook_port)
        )
        _raise_descriptor_limit()
        backend = make_backend or _BACKENDS[settings.backend]
        gateway = Gateway(settings, keys=keys, quotas=quotas, prices=prices, make_backend=backend)
        failing = gateway.metrics.reload_failing
        server = Server(
            uvicorn.Config(
                gateway.edge,
                loop="none",
                http=protocol(is_known=gateway.edge.is_known, has_room=gateway.pool.has_room),
                ws=WebSocket,
                # A compressor takes 40 KB per terminal, and more loop time than sending the bytes uncompressed.
                ws_per_message_deflate=False,
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,  # X-Forwarded-For can be forged
                backlog=_BACKLOG,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=LAST_ANSWERS,
            )
        )
        loop = asyncio.get_running_loop()
        if requests is None:
            requests = EndRequests()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, requests.ask)
        serving = loop.create_task(server.serve(sockets=[listening]))
        # If the server stops by itself, the process must end, too.
        serving.add_done_callback(lambda _: requests.begin())
        tls = _tls_server(settings, gateway=gateway, ended=requests.begin)
        watching = Tasks()

        async def start() -> None:
            await gateway.start()
            await gateway.webhook_listener.open([webhooks])
            if tls is not None:
                await tls.start()

        async def stopped(times: StopTimes) -> None:
            # Shielded: a signal must hurry the server, not cancel it.
            await asyncio.gather(asyncio.shield(serving), return_exceptions=True)
            if tls is not None:
                await tls.stop(timeout=times.tls)
            await gateway.webhook_listener.close()
            webhooks.close()
            await gateway.stop(times)

        try:
            if not await started(start(), hurry=requests.hurry):
                return 0
            _freeze()
            url = _url(settings.host, listening.getsockname()[1])
            if gateway.mcp is not None:
                gateway.mcp.open(url)
            _write_endpoint(endpoint, url, [*fixed, *filed])
            if file is not None:
                following = file.follow(
                    keys,
                    fixed=fixed,
                    changed=partial(_write_endpoint, endpoint, url),
                    failing=partial(failing, "api_keys"),
                )
                watching.spawn(following)
            for name, each in reloaded.items():
                watching.spawn(each.follow(failing=partial(failing, name)))
            if settings.key_file is not None:
                files = KeyringFiles(settings.key_file, failing=partial(failing, "master_key"))
                watching.spawn(files.follow(gateway.tokens.use, used=gateway.tokens.keys))
            if tls is not None:
                watching.spawn(tls.follow())
            (announce or _announce)(gateway, url)
            await until_end(requests, gateway=gateway, idle=settings.exit_when_idle)
            await leave(gateway, server, seconds=settings.leave, hurry=requests.hurry)
            await drain(gateway, server, seconds=settings.drain, hurry=requests.hurry)
        finally:
            requests.begin()  # or the first signal after a failure would hurry nothing
            server.should_exit = True
            await watching.close()
            await stop(stopped, server=server, hurry=requests.hurry)
    finally:
        endpoint.unlink(missing_ok=True)
        (state_dir / "gateway.sock").unlink(missing_ok=True)
        lock.release()
    return 0


def _tls_server(settings: Settings, *, gateway: Gateway, ended: Callable[[], None]) -> TlsServer | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return TlsServer(
        gateway.edge,
        host=settings.tls_host or settings.host,
        port=settings.tls_port,
        cert=settings.tls_cert,
        key=settings.tls_key,
        backlog=_BACKLOG,
        keep_alive=KEEP_ALIVE,
        ended=ended,
        failing=partial(gateway.metrics.reload_failing, "certificate"),
    )


def _announce(gateway: Gateway, url: str) -> None:
    # A reader of the audit log expects nothing but records.
    stream = sys.stderr if gateway.settings.audit_log == STDOUT else sys.stdout
    print(f"sandlot: ready at {url}", file=stream, flush=True)


def _local_backend(settings: Settings, tokens: Tokens, pool: HttpPool) -> Backend:
    from sandlot_gateway.backends.local.backend import LocalBackend
    from sandlot_gateway.backends.local.settings import LocalSettings

    files = (settings.api_keys_file, settings.secrets_dir, settings.event_webhooks_file)
    hidden = [path for path in files if path is not None] + secret_files(settings)
    return LocalBackend(
        state_dir=settings.state_dir,
        tokens=tokens,
        pool=pool,
        secret_paths=hidden,
        settings=LocalSettings(gpu_root=settings.gpu_root, secrets_dir=settings.secrets_dir),
    )


def _kubernetes_backend(settings: Settings, tokens: Tokens, pool: HttpPool) -> Backend:
    from sandlot_gateway.backends.kubernetes.backend import KubernetesBackend
    from sandlot_gateway.backends.kubernetes.settings import kubernetes_settings

    return KubernetesBackend(tokens=tokens, pool=pool, settings=kubernetes_settings(settings))


_BACKENDS: dict[str, MakeBackend] = {"local": _local_backend, "kubernetes": _kubernetes_backend}


def _key_entries(settings: Settings, *, file: KeyFile | None) -> tuple[list[str], list[str]]:
    """Return the API keys of the settings and of the file; without any, generate one and store it."""
    given = [] if settings.api_key is None else [settings.api_key]
    fixed = [*given, *Keys.entries(settings.api_keys)]
    filed = file.entries() if file is not None else []
    if not fixed and not filed:
        made = secret_file(settings.state_dir / "api_key", lambda: secrets.token_urlsafe(24).encode())
        fixed = [made.decode()]
    return fixed, filed


def _listen_tcp(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise OSError(
            error.errno, f"cannot listen on {host} port {port}: {error.strerror}; choose another port"
        ) from error


def _listen_unix(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(str(path))
        path.chmod(0o600)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"cannot listen on {path}: {error.strerror or error}") from error
    return listening


def _url(host: str, port: int) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _write_endpoint(path: Path, url: str, entries: list[str]) -> None:
    """Write URL and API key for clients on this machine; `entries` are those of API keys."""
    api_key = entries[0].partition(":")[0]
    write_atomic(path, json.dumps({"url": url, "api_key": api_key, "pid": os.getpid()}).encode())


def _raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _freeze() -> None:
    """Exclude the start-up heap from garbage collections: it cost a third of the throughput and most of the p99."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()
