"""Memory of a gateway that follows 5,000 pods: a real API server, pods that kwok runs, one stub for all sidecars."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import yaml
from sandlot_controller.pod import pool_pod
from sandlot_controller.settings import Settings
from sandlot_gateway.sandboxes import Sandbox, Spec, new_id
from sandlot_gateway.tokens import Tokens
from sandlot_kube import paths
from sandlot_kube.client import KubeClient
from sandlot_kube.names import API_VERSION, POOL_KIND, SANDBOX_KIND, SIDECAR_PORT
from sandlot_kube.objects import SandboxPool

from loadtests.reading import Reading
from tests.kube.apiserver import ApiServer, binary, why_not

PODS = 5000
NODES = 10
# Which address a pod gets. kwok's own choice is another one each time that it looks at the pod, and under load it looks
# twice: half of the pods then were where nobody answers.
ADDRESS = "loadtests.sandlot.dev/address"
_MASTER = b"m" * 32
_STAGES = Path(__file__).with_name("kwok-stages.yaml")
_CRDS = Path(__file__).resolve().parents[2] / "charts" / "sandlot" / "crds"
_AT_ONCE = 32
_LEARNED = 300.0  # seconds for a gateway to ask 5,000 sidecars, beside the API server on the same cores


async def many_pods() -> dict[str, Reading]:
    """The row `gateway_memory`: resident MiB with 5,000 sandboxes in as many pods."""
    missing = why_not() or (None if binary("kwok") else "needs kwok of the test cluster")
    if missing:
        raise RuntimeError(missing)
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sandlot-kwok-")))
        server = stack.enter_context(_api_server(directory))
        client = KubeClient(server.access())
        stack.push_async_callback(client.close)
        empty = server.namespace("empty")
        async with _gateway(directory / "empty", server, empty, sandboxes=0) as (process, _):
            alone = _resident(process)
        namespace = server.namespace("kwok")
        states = await _make_objects(client, namespace)
        stack.enter_context(_kwok(directory, server))
        await _running(client, namespace)
        await stack.enter_async_context(_stub(states))
        async with _gateway(directory / "full", server, namespace, sandboxes=PODS) as (process, took):
            full = _resident(process)
            cpu = sum(process.cpu_times()[:2])
    parts = {
        "without pods": f"{alone / 2**20:.0f} MiB",
        "a sandbox": f"{(full - alone) / PODS / 1024:.1f} KiB",
        "knows all after": f"{took:.1f} s",
        "its CPU until then": f"{cpu:.1f} s",
    }
    return {"gateway_memory": Reading(value=full / 2**20, parts=parts)}


def _resident(process: psutil.Process) -> int:
    return process.memory_info().rss


@contextmanager
def _api_server(directory: Path) -> Iterator[ApiServer]:
    home = directory / "apiserver"
    home.mkdir()
    server = ApiServer(home)
    try:
        server.start_etcd()
        server.start()
        for path in sorted(_CRDS.glob("*.yaml")):
            server.apply_crd(yaml.safe_load(path.read_text()))
        yield server
    finally:
        server.close()
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _kwok(directory: Path, server: ApiServer) -> Iterator[None]:
    kubeconfig = server.kubeconfig(directory / "kwok.kubeconfig")
    program = binary("kwok")
    assert program is not None
    command = [str(program), "--kubeconfig", str(kubeconfig), "--manage-all-nodes", "--config", str(_STAGES)]
    with (directory / "kwok.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _make_objects(client: KubeClient, namespace: str) -> dict[str, bytes]:
    """Nodes, pods as the controller makes them, and a Sandbox for each; the stub's answers by token."""
    tokens = Tokens(_MASTER)
    settings = Settings(
        namespace=namespace,
        key_file=Path("/nonexistent"),
        webhook_url="http://gateway.sandlot.svc.cluster.local.:8642/internal/sidecar",
        sidecar_image="sandlot/sidecar:1",
    )
    for number in range(NODES):
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"kwok-{number}", "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "status": {"allocatable": {"pods": "1000"}, "capacity": {"pods": "1000"}},
        }
        await client.request("POST", "/api/v1/nodes", body=body)
    crd = {"image": "python:3.12", "cpu": 1, "memory": 1 << 30, "disk": 5 << 30, "pids": 1024}
    resource = {
        "apiVersion": API_VERSION,
        "kind": POOL_KIND,
        "metadata": {"name": "kwok"},
        "spec": {"size": 0, "template": crd},
    }
    await client.request("POST", paths.pools(namespace), body=resource)
    pool = msgspec.convert(resource, SandboxPool)
    states: dict[str, bytes] = {}
    slots = asyncio.Semaphore(_AT_ONCE)

    async def make(number: int) -> None:
        instance_id = f"i-{number:016x}"
        token = tokens.instance(instance_id)
        pod = pool_pod(pool, instance_id=instance_id, token=token, settings=settings)
        pod["spec"]["nodeName"] = f"kwok-{number % NODES}"
        pod["metadata"]["annotations"][ADDRESS] = _address(number)
        now = time.time()
        spec = Spec(name=f"rollout-{number}", image="python:3.12", pool="kwok")
        sandbox = Sandbox(id=new_id(now), tenant="default", spec=spec, created_at=now, updated_at=now)
        sandbox.pool_hit = True
        record = {
            "apiVersion": API_VERSION,
            "kind": SANDBOX_KIND,
            "metadata": {"name": sandbox.id},
            "spec": {
                "template": crd,
                "podName": instance_id,
                "sandboxId": sandbox.id,
                "tenant": "default",
                "labels": [],
            },
        }
        states[token] = _state(sandbox, instance_id)
        async with slots:
            await client.request("POST", paths.pods(namespace), body=pod)
            await client.request("POST", paths.sandboxes(namespace), body=record)

    async with asyncio.TaskGroup() as group:
        for number in range(PODS):
            group.create_task(make(number))
    return states


def _state(sandbox: Sandbox, instance_id: str) -> bytes:
    """What the sidecar of an owned sandbox answers, without an address: the pod's own is to be used."""
    state: dict[str, Any] = {
        "instance_id": instance_id,
        "address": None,
        "generation": 1,
        "phase": "claimed",
        "version": "0",
        "sandbox_id": sandbox.id,
        "claimed_at": sandbox.created_at,
        "meta": sandbox.meta(),
        "notes": [],
        "verdict": None,
        "message": None,
    }
    return json.dumps(state).encode()


@asynccontextmanager
async def _stub(states: dict[str, bytes]) -> AsyncIterator[None]:
    """Tells each sidecar's state to whoever has its token, on the pods' addresses."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                lines = [line.partition(": ") for line in head.split("\r\n")]
                token = next(value for name, _, value in lines if name.lower() == "authorization")
                body = states[token.removeprefix("Bearer ")]
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    # Not on all of loopback at once: other programs' pods may be on this machine's loopback, too.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    addresses = [_address(number) for number in range(len(states))]
    server = await asyncio.start_server(answer, addresses, SIDECAR_PORT)
    try:
        yield
    finally:
        server.close()


def _address(number: int) -> str:
    return f"127.7.{number >> 8}.{number & 255}"


async def _running(client: KubeClient, namespace: str) -> None:
    """Waits until kwok has all pods running."""
    params = {"fieldSelector": "status.phase!=Running", "limit": "1"}
    async with asyncio.timeout(400):
        while True:
            found = json.loads(await client.request("GET", paths.pods(namespace), params=params))
            if not found["items"]:
                return
            await asyncio.sleep(0.5)


def _prepare(home: Path, server: ApiServer, namespace: str) -> Path:
    home.mkdir()
    (home / "master").write_bytes(_MASTER)
    return server.kubeconfig(home / "kubeconfig", namespace=namespace)


@asynccontextmanager
async def _gateway(
    home: Path, server: ApiServer, namespace: str, *, sandboxes: int
) -> AsyncIterator[tuple[psutil.Process, float]]:
    """A gateway that knows so many sandboxes, and the seconds that it took to learn of them."""
    kubeconfig = _prepare(home, server, namespace)
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    key = secrets.token_hex(16)
    words = ["--backend", "kubernetes", "--port", "0", "--namespace", namespace, "--api-key", key]
    words += ["--key-file", str(home / "master"), "--state-dir", str(home / "state")]
    words += ["--kube-context", "test"]
    begun = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandlot_gateway", *words),
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_LEARNED):
            line = (await process.stdout.readline()).decode().split()
            if not line:
                raise RuntimeError("the gateway did not start")
            url = line[-1].removeprefix("http://")
            await _until_live(url, key, sandboxes)
        yield psutil.Process(process.pid), time.monotonic() - begun
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _until_live(authority: str, key: str, sandboxes: int) -> None:
    while True:
        if await _live(authority, key) >= sandboxes:
            return
        await asyncio.sleep(0.2)


async def _live(authority: str, key: str) -> int:
    """The gateway's own count of sandboxes that have not ended."""
    host, _, port = authority.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(
            f"GET /metrics HTTP/1.1\r\nhost: {authority}\r\nauthorization: Bearer {key}\r\n"
            "connection: close\r\n\r\n".encode()
        )
        text = (await reader.read()).decode()
    finally:
        writer.close()
    for line in text.splitlines():
        if line.startswith("sandlot_live_sandboxes "):
            return int(float(line.split()[1]))
    raise RuntimeError(f"the gateway's metrics tell no sandboxes: {text[:200]}")
