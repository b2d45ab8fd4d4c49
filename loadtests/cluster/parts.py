"""Runs gateway and controller as processes over a bare API server, and reads a gateway's metrics."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
from sandlot_controller.settings import Settings

from tests.kube.apiserver import ApiServer
from tests.ports import free_port

MASTER = b"m" * 32  # the master key of the parts' tokens
# The controller gives its pods these; nothing is there.
_WEBHOOK_URL = "http://gateway.sandlot.svc.cluster.local.:8641/internal/sidecar"
_SIDECAR_IMAGE = "sandlot/sidecar:1"
PATIENCE = 900.0  # seconds, three times what the longest step has taken
_LEARNED = 300.0  # seconds for a gateway to probe 5,000 sidecars, beside the API server on the same cores


@dataclass(frozen=True, slots=True)
class Part:
    process: psutil.Process
    url: str
    api_key: str
    took: float  # seconds until it was ready, or knew all sandboxes

    async def number(self, name: str) -> float:
        """Read one of its metrics."""
        # A bare connection: making a client for each request would cost more than the request.
        authority = self.url.removeprefix("http://")
        host, _, port = authority.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            head = f"GET /metrics HTTP/1.1\r\nhost: {authority}\r\nauthorization: Bearer {self.api_key}\r\n"
            writer.write(f"{head}connection: close\r\n\r\n".encode())
            text = (await reader.read()).decode()
        finally:
            writer.close()
        for line in text.splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise RuntimeError(f"{self.url}/metrics tells no {name}: {text[:200]}")


@dataclass(frozen=True, slots=True)
class OneOfSeveral:
    """A gateway's own address, the API key of all, a file of hosts in which the name `gateways` is all of them, and how
    many files it may have open.
    """

    host: str
    port: int
    api_key: str
    hosts: Path
    files: int


@asynccontextmanager
async def gateway(
    home: Path,
    server: ApiServer,
    namespace: str,
    *,
    sandboxes: int = 0,
    agents: bool = False,
    among: OneOfSeveral | None = None,
    options: Sequence[str] = (),
) -> AsyncIterator[Part]:
    """Run a gateway and wait until it knows this many sandboxes; creates `home`. Needs root if it is `among` several.

    `agents`: claims take their images from node agents, which accept any token here. `options`: further ones of
    its command line.
    """
    kubeconfig = _prepare(home, server, namespace, user="gateway")
    key = secrets.token_hex(16) if among is None else among.api_key
    words = ["--backend", "kubernetes", "--namespace", namespace, "--api-key", key]
    if among is None:
        words += ["--port", "0"]
    else:
        words += ["--host", among.host, "--port", str(among.port), "--peers", f"gateways:{among.port}"]
    words += ["--key-file", str(home / "master"), "--state-dir", str(home / "state")]
    words += ["--kube-context", "test", "--webhook-port", "0", *options]
    if agents:
        words += ["--node-agent-token-file", str(home / "master")]
    begun = time.monotonic()
    with (home / "gateway.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *([] if among is None else _within(among)),
            *(sys.executable, "-m", "sandlot_gateway", *words),
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_LEARNED):
            line = (await process.stdout.readline()).decode().split()
            if not line:
                raise RuntimeError(f"the gateway did not start: {_last_words(home / 'gateway.log')}")
            made = Part(psutil.Process(process.pid), line[-1], key, 0.0)

            async def knows() -> bool:
                return await made.number("sandlot_live_sandboxes") >= sandboxes

            await until(knows)
        yield replace(made, took=time.monotonic() - begun)
    finally:
        await _end(process)


@asynccontextmanager
async def controller(
    home: Path,
    server: ApiServer,
    namespace: str,
    *,
    retention: float,
    slots: bool = False,
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[Part]:
    """Run a controller that logs to `home`, which it creates; the gateway URL it gives sidecars is unreachable.

    `slots`: its pods take any image. `settings`: further ones, by the names of their variables.
    """
    kubeconfig = _prepare(home, server, namespace, user="controller")
    port = free_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SANDLOT_")},
        "KUBECONFIG": str(kubeconfig),
        "SANDLOT_NAMESPACE": namespace,
        "SANDLOT_LEASE_NAMESPACE": namespace,
        "SANDLOT_KEY_FILE": str(home / "master"),
        "SANDLOT_WEBHOOK_URL": _WEBHOOK_URL,
        "SANDLOT_SIDECAR_IMAGE": _SIDECAR_IMAGE,
        "SANDLOT_HEALTH_HOST": "127.0.0.1",
        "SANDLOT_HEALTH_PORT": str(port),
        "SANDLOT_RETENTION": str(retention),
        **({"SANDLOT_IMAGES_DIRECTORY": "/var/lib/sandlot/images"} if slots else {}),
        **(settings or {}),
    }
    begun = time.monotonic()
    with (home / "controller.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sandlot_controller"),
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        made = Part(psutil.Process(process.pid), f"http://127.0.0.1:{port}", "none", 0.0)
        async with asyncio.timeout(_LEARNED):
            await until(lambda: _leads(made, process, log=home / "controller.log"))
        yield replace(made, took=time.monotonic() - begun)
    finally:
        await _end(process)


def controller_settings(namespace: str) -> Settings:
    """Return the settings of a controller, for pods that are made as its own, without one."""
    return Settings.model_validate(
        {
            "namespace": namespace,
            "key_file": Path("/nonexistent"),
            "webhook_url": _WEBHOOK_URL,
            "sidecar_image": _SIDECAR_IMAGE,
        }
    )


async def until(met: Callable[[], Awaitable[bool]], *, pause: float = 0.5) -> None:
    """Poll until it is so: there is no event to wait for. Raises TimeoutError after `PATIENCE`."""
    ends = time.monotonic() + PATIENCE
    while True:
        if await met():
            return
        if time.monotonic() > ends:
            raise TimeoutError(f"not so after {PATIENCE:g} s: {met.__qualname__}")
        await asyncio.sleep(pause)


async def _leads(controller: Part, process: asyncio.subprocess.Process, *, log: Path) -> bool:
    if process.returncode is not None:
        raise RuntimeError(f"the controller ended: {_last_words(log)}")
    try:
        return await controller.number("sandlot_controller_leader") == 1
    except ConnectionError:
        return False


def cpu(process: psutil.Process) -> float:
    """Return the CPU seconds of all its threads."""
    return sum(process.cpu_times()[:2])


def writes(server: ApiServer, *, namespace: str) -> Counter[str]:
    """Return the writes of gateways and controllers so far, without Leases, by `PART VERB RESOURCE`."""
    return Counter(
        f"{user} {verb} {resource}"
        for user in ("gateway", "controller")
        for verb, resource in server.writes(user, namespace=namespace)
    )


def _within(among: OneOfSeveral) -> list[str]:
    """Return the words before a program that sees the file as /etc/hosts, and may have so many files open."""
    script = 'ulimit -n "$1" && mount --bind "$0" /etc/hosts && shift && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, str(among.hosts), str(among.files)]


def _prepare(home: Path, server: ApiServer, namespace: str, *, user: str) -> Path:
    home.mkdir()
    (home / "master").write_bytes(MASTER)
    return server.kubeconfig(home / "kubeconfig", namespace=namespace, token=server.tokens[user])


def _last_words(log: Path) -> str:
    return log.read_text(errors="replace")[-1500:]


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()
