"""An image registry beside the nodes, started when the first image is pushed to it; it ends with the cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
    pid = _spawn(
        engine.inside([BIN / "registry", "serve", settings]),
        env={**engine.environment(), "OTEL_TRACES_EXPORTER": "none"},
        log=LOGS / "registry.log",
    )
    record.write_text(json.dumps({"pid": pid, "address": address}))
    for node in nodes:
        tell(engine, node, host=REGISTRY_HOST, address=address)
    return address


def _spawn(command: list[str], *, env: Mapping[str, str], log: Path) -> int:
    """Starts a program that outlives us, in a session of its own: of a Popen, Python warns at its end that it runs."""
    create = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), create, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
        # Else it would hold a lock of its caller's for as long as it runs.
        *((os.POSIX_SPAWN_CLOSE, number) for number in _inheritable() if number > 2),
    ]
    program = shutil.which(command[0], path=env["PATH"]) or command[0]
    ignored = [signal.SIGPIPE]  # by Python, which a program is not to inherit
    return os.posix_spawn(program, command, env, file_actions=files, setsid=True, setsigdef=ignored)


def _inheritable() -> list[int]:
    """The open descriptors that a program started here would have."""
    found: list[int] = []
    for number in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # the one that read the directory is closed
            if os.get_inheritable(number):
                found.append(number)
    return found


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
