"""An image registry beside the nodes, started when the first image is pushed to it; it ends with the cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.config import REGISTRY_HOST
from tests.cluster.engine import Engine
from tests.cluster.paths import BIN, HERE, LOGS, STATE

PORT = 5000


def is_running(pid: int) -> bool:
    """Whether that process is the registry."""
    try:
        return b"registry" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


# It outlives whoever starts it; Python warns when it frees the object of a running process.
_started: list[subprocess.Popen[bytes]] = []


def start(engine: Engine, *, nodes: Sequence[str]) -> str:
    """The registry's address, as programs beside the cluster reach it; starts it if need be and tells the nodes."""
    record = STATE / "registry.json"
    if record.exists():
        known = json.loads(record.read_text())
        if is_running(known["pid"]):
            return known["address"]
    gateway = engine.on_node(nodes[0], "ip", "-4", "route", "show", "default").split()[2]
    address = f"{gateway}:{PORT}"
    settings = STATE / "registry.yaml"
    settings.write_text(
        json.dumps(
            {
                "version": 0.1,
                "log": {"level": "warn"},
                "storage": {"filesystem": {"rootdirectory": str(STATE / "registry")}},
                "http": {"addr": address, "secret": "of no use: one registry, no redirects"},
            }
        )
    )
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / "registry.log").open("w") as log:
        process = subprocess.Popen(
            engine.inside([BIN / "registry", "serve", settings]),
            env={**engine.environment(), "OTEL_TRACES_EXPORTER": "none"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _started.append(process)
    record.write_text(json.dumps({"pid": process.pid, "address": address}))
    for node in nodes:
        tell(engine, node, host=REGISTRY_HOST, address=address)
    return address


def tell(engine: Engine, node: str, *, host: str, address: str) -> None:
    """Has a node's containerd reach the registry of this name at this address; it looks at each pull."""
    place = f"/etc/containerd/certs.d/{host}"
    script = f"mkdir -p {place} && cat > {place}/hosts.toml"
    engine.on_node(
        node, "sh", "-c", script, stdin=f'server = "http://{address}"\n[host."http://{address}"]\n'
    )


def push(engine: Engine, *, nodes: Sequence[str], source: Path) -> list[str]:
    """Pushes an OCI archive or the images of a layout's directory and gives the names under which pods pull them."""
    address = start(engine, nodes=nodes)
    pushed = engine.run([sys.executable, HERE / "push.py", address, source.resolve()])
    return [f"{REGISTRY_HOST}/{name}" for name in pushed.split()]


def stop() -> None:
    """Ends the registry, if one was started."""
    record = STATE / "registry.json"
    if record.exists():
        pid = json.loads(record.read_text())["pid"]
        if is_running(pid):
            os.kill(pid, 9)
        record.unlink()
