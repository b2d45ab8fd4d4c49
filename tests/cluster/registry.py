"""Image registries beside the nodes: the cluster's, which starts with the first push and ends with it, and a test's own."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.config import REGISTRY_HOST
from tests.cluster.engine import Engine
from tests.cluster.paths import BIN, HERE, LOGS, STATE
from tests.cluster.push import connect
from tests.cluster.shell import ClusterError

PORT = 5000
ANSWERS_WITHIN = 120.0  # seconds


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
    address = f"{_beside(engine, nodes[0])}:{PORT}"
    settings = _settings(STATE / "registry.yaml", address=address, storage=STATE / "registry")
    LOGS.mkdir(parents=True, exist_ok=True)
    pid = _spawn(
        engine.inside([BIN / "registry", "serve", settings]),
        env=_environment(engine),
        log=LOGS / "registry.log",
    )
    record.write_text(json.dumps({"pid": pid, "address": address}))
    for node in nodes:
        tell(engine, node, host=REGISTRY_HOST, address=address)
    return address


@dataclass(frozen=True, slots=True)
class Registry:
    """One that a test has for itself: its address, as programs beside the cluster reach it, and its log of requests."""

    address: str
    log: Path


@contextmanager
def another(engine: Engine, *, nodes: Sequence[str], host: str, directory: Path) -> Iterator[Registry]:
    """An empty registry that the nodes have under the name `host`, with its port, until the block ends; it answers."""
    record = STATE / f"registry-{host}.json"
    _end(record)  # that of a run which was killed
    address = f"{_beside(engine, nodes[0])}:{host.partition(':')[2]}"
    settings = _settings(directory / "registry.yaml", address=address, storage=directory / "storage")
    made = Registry(address, directory / "registry.log")
    with made.log.open("wb") as log:
        process = subprocess.Popen(
            engine.inside([BIN / "registry", "serve", settings]),
            env=_environment(engine),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    with ExitStack() as at_the_end:  # all of it, also after an error
        at_the_end.callback(record.unlink, missing_ok=True)
        at_the_end.callback(process.wait)
        at_the_end.callback(process.kill)
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps({"pid": process.pid, "address": address}))
        _wait_for_an_answer(made, process)
        for node in nodes:
            at_the_end.callback(engine.on_node, node, "rm", "-rf", f"/etc/containerd/certs.d/{host}")
            tell(engine, node, host=host, address=address)
        yield made


def _wait_for_an_answer(made: Registry, process: subprocess.Popen[bytes]) -> None:
    """Raises ClusterError with the end of its log if it ends before, or takes too long."""
    deadline = time.monotonic() + ANSWERS_WITHIN
    while True:
        ended = process.poll() is not None
        try:
            if not ended:
                connect(made.address, seconds=0).close()
                return
        except OSError:
            if time.monotonic() < deadline:
                time.sleep(0.1)
                continue
        how = f"ended with {process.returncode}" if ended else f"did not answer within {ANSWERS_WITHIN:.0f} s"
        log = made.log.read_text(errors="replace")[-4000:]
        raise ClusterError(f"the registry at {made.address} {how}:\n{log}")


def _beside(engine: Engine, node: str) -> str:
    """The address that nodes and programs beside the cluster have in common."""
    return engine.on_node(node, "ip", "-4", "route", "show", "default").split()[2]


def _settings(path: Path, *, address: str, storage: Path) -> Path:
    """Writes a registry's configuration."""
    settings = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(storage)}},
        "http": {"addr": address, "secret": "of no use: one registry, no redirects"},
    }
    path.write_text(json.dumps(settings))
    return path


def _environment(engine: Engine) -> dict[str, str]:
    return {**engine.environment(), "OTEL_TRACES_EXPORTER": "none"}


def _spawn(command: list[str], *, env: Mapping[str, str], log: Path) -> int:
    """Starts a program that outlives us, in a session of its own: of a Popen, Python warns at its end that it runs."""
    create = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), create, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
        # A lock that whoever runs us holds by an open file would stay held until the program ends.
        *((os.POSIX_SPAWN_CLOSE, number) for number in _inherited()),
    ]
    program = shutil.which(command[0], path=env["PATH"]) or command[0]
    ignored = [signal.SIGPIPE]  # by Python, which a program is not to inherit
    return os.posix_spawn(program, command, env, file_actions=files, setsid=True, setsigdef=ignored)


def _inherited() -> list[int]:
    """The open files, but for the three standard ones, that a program which we start would have, too."""
    found: list[int] = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
        except OSError:
            continue  # that of the listing itself
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
    """Ends the registry, if one was started, and those of tests that were killed."""
    for record in STATE.glob("registry*.json"):
        _end(record)


def _end(record: Path) -> None:
    if record.exists():
        pid = json.loads(record.read_text())["pid"]
        if is_running(pid):
            process = os.pidfd_open(pid)
            try:
                signal.pidfd_send_signal(process, signal.SIGKILL)
                select.select([process], [], [], 10)  # until then it has its port
            finally:
                os.close(process)
        record.unlink()
