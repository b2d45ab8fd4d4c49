"""The server process: builds all parts, listens, and runs until the instance has ended or a signal arrives."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import socket

from ..core import ends
from ..core.instance import Phase
from . import lazy_routes, log, mark
from .executor_client import ExecutorClient
from .http import Http
from .instance import Instance
from .instance_routes import InstanceRoutes
from .op_routes import OpRoutes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..config import Config
    from .tls import Tls

BACKLOG = 4096
ACCEPTED_AT_ONCE = 64  # a flood beyond this would be accepted before the first of it can be closed
TERM_PATIENCE = 5.0  # seconds of retries of the `ended` webhook after SIGTERM


def run(config: Config, executor: socket.socket) -> int:
    """Serve until the end; return the exit status: 2 for TLS files that cannot be used."""
    log.bind(instance=config.instance_id)
    tls = None
    if config.tls is not None:
        from .tls import BadTlsFiles, Tls

        try:
            tls = Tls(config.tls)
        except BadTlsFiles as error:
            log.event("tls_files", state="bad", reason=str(error))
            return 2
    with asyncio.Runner() as runner:
        return runner.run(_serve(config, executor, tls))


async def _serve(config: Config, executor: socket.socket, tls: Tls | None) -> int:
    _raise_file_limit()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_loop_failure)
    http = Http(instance_token=config.token)
    connect = http.connect if tls is None else tls.serving(http.connect)
    instance = Instance(config=config, executor=ExecutorClient(executor), tls=tls)
    instance.on_token = http.set_sandbox_token
    http.gate = instance.life.gate
    InstanceRoutes(instance, http).add_to(http)
    OpRoutes(instance).add_to(http)
    lazy_routes.add_to(http, instance)
    listener, path = _listen(config.listen)
    server = await (
        loop.create_unix_server(connect, sock=listener, backlog=ACCEPTED_AT_ONCE)
        if path
        else loop.create_server(connect, sock=listener, backlog=ACCEPTED_AT_ONCE)
    )
    listener.listen(BACKLOG)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: instance.tasks.spawn(_terminate(instance)))
    log.event("listening", address=config.listen)
    starting = instance.tasks.spawn(instance.start())
    starting.add_done_callback(lambda _task: _settle())
    try:
        await instance.finished.wait()
    finally:
        server.close()
        if path:
            _unlink_own(path)
        await http.close()
        await instance.close()
    return 0


def _settle() -> None:
    """Freeze all objects made so far, so that later collections neither walk them nor copy their pages."""
    gc.collect()
    gc.freeze()


def _loop_failure(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    error = context.get("exception")
    if isinstance(error, BaseException):
        log.failure("loop_failure", error, detail=str(context.get("message")))
    else:
        log.event("loop_failure", detail=str(context.get("message")))


async def _terminate(instance: Instance) -> None:
    """Handle SIGTERM: end the sandbox as evicted or deleted, unless it ends already, perhaps with a grace."""
    end = ends.terminated(owned=instance.record.claim is not None)
    await instance.end(end, patience=TERM_PATIENCE)
    if instance.life.phase is Phase.FAILED:
        instance.finished.set()


def _listen(address: str) -> tuple[socket.socket, str | None]:
    """Return the listening socket, and its path if it is a Unix socket (mode 0600)."""
    if not address.startswith("unix:"):
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        mark.put_on(sock)
        try:
            # Not before bind: with the option, gVisor would let user code bind one of our addresses and impersonate us.
            sock.bind((host, int(port)))
        except OSError:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of the last run linger
            sock.bind((host, int(port)))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # for the next run
        return sock, None
    path = address[5:]
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Bound under another name and renamed: the path never leads to a socket that is not listening yet, nor to one
    # that others may open.
    temporary = f"{path}.{os.getpid()}"
    sock.bind(temporary)
    os.chmod(temporary, 0o600)
    sock.listen(BACKLOG)
    os.rename(temporary, path)
    return sock, path


def _unlink_own(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
