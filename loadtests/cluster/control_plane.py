"""A control plane without machines: API server, etcd, kube-scheduler, and nodes and pods simulated by kwok."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml
from sandlot_kube import paths
from sandlot_kube.client import MERGE_PATCH, KubeClient

from tests.kube.apiserver import ApiServer, binary, why_not

AT_ONCE = 32  # concurrent requests of this program
_CRDS = Path(__file__).resolve().parents[2] / "charts" / "sandlot" / "crds"
ROOM = {"pods": "1000", "cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti"}


def missing(*programs: str) -> str | None:
    """Return why no control plane can run here, or None."""
    absent = [name for name in programs if binary(name) is None]
    return why_not() or (f"needs {' and '.join(absent)} of the test cluster" if absent else None)


@contextmanager
def api_server(directory: Path) -> Iterator[ApiServer]:
    """Run an API server with the custom resource definitions; remove its files at the end."""
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
def kwok(directory: Path, server: ApiServer, *, stages: Path, at_once: int = 4) -> Iterator[None]:
    """Run kwok, which simulates all nodes and the pods bound to them by its stages, so many pods at a time."""
    kubeconfig = server.kubeconfig(directory / "kwok.kubeconfig")
    words = ["--kubeconfig", str(kubeconfig), "--manage-all-nodes", "--config", str(stages)]
    config = directory / "kwok.yaml"
    # A file of options has no defaults for the others.
    options = {
        "podPlayStageParallelism": at_once,
        "nodePlayStageParallelism": 4,
        "podsOnNodeSyncParallelism": 4,
        "nodeLeaseParallelism": 4,
        "manageAllNodes": True,
        "cidr": "10.0.0.1/24",
        "nodeIP": "10.0.0.1",
    }
    about = {"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration"}
    config.write_text(json.dumps({**about, "options": options}))
    words += ["--config", str(config)]
    with running("kwok", words, directory=directory):
        yield


@contextmanager
def scheduler(directory: Path, server: ApiServer) -> Iterator[None]:
    """Run a kube-scheduler without its request rate limit, which is not what is measured."""
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": str(server.kubeconfig(directory / "scheduler.kubeconfig")),
            "qps": 5000,
            "burst": 5000,
        },
        "leaderElection": {"leaderElect": False},
    }
    path = directory / "scheduler.json"
    path.write_text(json.dumps(config))
    with running("kube-scheduler", ["--config", str(path), "--secure-port=0"], directory=directory):
        yield


@contextmanager
def controller_manager(
    directory: Path, server: ApiServer, *, controllers: Sequence[str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run these controllers of kube-controller-manager with its default settings; audits name it `controller`."""
    kubeconfig = server.kubeconfig(directory / "manager.kubeconfig", token=server.tokens["controller"])
    words = [f"--kubeconfig={kubeconfig}", f"--controllers={','.join(controllers)}"]
    words += ["--leader-elect=false", "--secure-port=0"]
    with running("kube-controller-manager", words, directory=directory) as process:
        yield process


async def until_running(client: KubeClient, namespace: str) -> None:
    """Wait until kwok has all pods running."""
    params = {"fieldSelector": "status.phase!=Running", "limit": "1"}
    async with asyncio.timeout(900):
        while True:
            found = json.loads(await client.request("GET", paths.pods(namespace), params=params))
            if not found["items"]:
                return
            await asyncio.sleep(0.5)


async def make_node(client: KubeClient, name: str, *, room: Mapping[str, str] = ROOM) -> None:
    """Create a node without the taint of a new one, which no controller here removes."""
    labels = {"kubernetes.io/hostname": name}
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"allocatable": room, "capacity": room},
    }
    await client.request("POST", paths.nodes(), body=body)
    await client.request(
        "PATCH", paths.nodes(name), body={"spec": {"taints": None}}, content_type=MERGE_PATCH
    )


async def make_nodes(client: KubeClient, count: int, *, room: Mapping[str, str] = ROOM) -> None:
    """Create nodes `kwok-0` and so on."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def make(name: str) -> None:
        async with slots:
            await make_node(client, name, room=room)

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(make(f"kwok-{number}"))


@contextmanager
def running(name: str, words: list[str], *, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of the test cluster, with its log in the directory."""
    program = binary(name)
    assert program is not None
    with (directory / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(program), *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
