"""Builds and validates the request bodies of create, exec and ops."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sandlot import builds
from sandlot._protocol import checks, leases
from sandlot._protocol.checks import Command
from sandlot.builds import Built
from sandlot.models import CheckpointInfo
from sandlot.units import parse_size

OP_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
GIB = 1 << 30
MAX_INLINE_STDIN = 4 * 1024 * 1024


def new_id() -> str:
    """Return a unique id of 32 hex digits."""
    return os.urandom(16).hex()


def op_id_or_new(op_id: str | None) -> str:
    if op_id is None:
        return new_id()
    if not OP_ID.fullmatch(op_id):
        raise ValueError("op_id: must be 1 to 128 of the characters A-Z a-z 0-9 . _ : -")
    return op_id


def exec_document(
    *,
    command: Command,
    cwd: str | None,
    env: Mapping[str, str] | None,
    timeout: float | None,
    user: str | int | None,
    shell: str | None,
    stdin: str | None,
) -> dict[str, Any]:
    """Build the body of a buffered exec."""
    document: dict[str, Any] = {"command": checks.argv(command)}
    if shell is not None:
        document["shell"] = checks.shell(shell)
    if cwd is not None:
        document["working_dir"] = cwd
    if env:
        document["env"] = checks.strings(env, name="env")
    if timeout is not None:
        document["timeout"] = checks.seconds(timeout, name="timeout")
    if user is not None:
        document["user"] = user
    if stdin is not None:
        document["stdin"] = stdin
    return document


def inline_stdin(stdin: str | bytes | None) -> str | None:
    """Return the input as text if it fits into the exec's JSON, else None."""
    if stdin is None or len(stdin) > MAX_INLINE_STDIN:
        return None
    if isinstance(stdin, str):
        return stdin
    try:
        return stdin.decode()
    except UnicodeDecodeError:
        return None


def op_document(
    *,
    op_id: str,
    command: Command,
    cwd: str | None,
    env: Mapping[str, str] | None,
    timeout: float | None,
    user: str | int | None,
    shell: str | None,
    stdin: bool,
    pty: tuple[int, int] | None,
    detach: bool,
) -> dict[str, Any]:
    """Build the body that creates an op or attaches to it."""
    document: dict[str, Any] = {"id": op_id, "command": checks.argv(command)}
    if shell is not None:
        document["shell"] = checks.shell(shell)
    if cwd is not None:
        document["cwd"] = cwd
    if env:
        document["env"] = checks.strings(env, name="env")
    if timeout is not None:
        document["timeout"] = checks.seconds(timeout, name="timeout")
    if user is not None:
        document["user"] = user
    if stdin:
        document["stdin"] = True
    if pty is not None:
        document["pty"] = {"cols": pty[0], "rows": pty[1]}
    if detach:
        document["detach"] = True
    return document


def policy_document(*, allow: Sequence[str] | None, deny: Sequence[str] | None) -> dict[str, Any]:
    """Build the body that sets an egress policy."""
    if (allow is None) == (deny is None):
        raise ValueError("give either allow or deny, not both")
    return {
        "allowlist": checks.targets(allow, name="allow"),
        "denylist": checks.targets(deny, name="deny"),
    }


def create_document(
    *,
    image: str | None,
    checkpoint: str | CheckpointInfo | Built | None,
    name: str | None,
    env: Mapping[str, str] | None,
    secrets: Mapping[str, str] | None,
    secret_refs: Mapping[str, str] | None,
    timeout: float | None,
    idle_timeout: float | None,
    network: str,
    allow: Sequence[str] | None,
    deny: Sequence[str] | None,
    cpu: float | None,
    memory: int | str | None,
    disk: int | str | None,
    pids: int | None,
    gpu_count: int | None,
    gpu_type: str | None,
    labels: Sequence[str],
    run: str | None,
    run_id: str | None,
    pool: str | None,
    start_command: Command | None,
    run_image_command: bool,
    stop_signal: str | int | None,
    stop_grace: float | None,
    workdir: str | None,
    user: str | int | None,
    idempotency_key: str,
    wait_seconds: float,
) -> dict[str, Any]:
    """Build the body of a create, in the units of the wire."""
    built = builds.of(checkpoint)
    if built is not None:
        env = {**built.env, **(env or {})}
        workdir, user = workdir or built.workdir, built.user if user is None else user
        stop_signal = built.stop_signal if stop_signal is None else stop_signal
        if run_image_command and built.command is not None and start_command is None:
            start_command, run_image_command = built.command, False
    checks.one_of(network, ("full", "none"), name="network")
    document: dict[str, Any] = {
        "network": network,
        "labels": checks.labels(labels),
        "idempotency_key": idempotency_key,
        "wait_seconds": wait_seconds,
        "vm": False,
    }
    if timeout is None:
        document["timeout_minutes"] = -1
    else:
        document["timeout_seconds"] = checks.seconds(timeout, name="timeout")
    optional: dict[str, Any] = {
        # A pool and a checkpoint imply an image; the server rejects another one.
        "docker_image": "host" if image is None and checkpoint is None and pool is None else image,
        "checkpoint_id": builds.checkpoint_id(checkpoint),
        "name": name,
        "idle_timeout_seconds": checks.seconds(idle_timeout, name="idle_timeout"),
        "network_allowlist": checks.targets(allow, name="allow"),
        "network_denylist": checks.targets(deny, name="deny"),
        "cpu_cores": cpu,
        "memory_gb": None if memory is None else parse_size(memory, name="memory") / GIB,
        "disk_size_gb": None if disk is None else parse_size(disk, name="disk") / GIB,
        "pids": pids,
        "gpu_count": gpu_count,
        "gpu_type": gpu_type,
        "environment_vars": checks.strings(env, name="env") if env else None,
        "secrets": checks.strings(secrets, name="secrets") if secrets else None,
        "secret_refs": checks.secret_refs(secret_refs) if secret_refs else None,
        "pool": pool,
        "start_command": None if start_command is None else checks.argv(start_command),
        "run_image_command": True if run_image_command else None,
        "stop_signal": stop_signal,
        "stop_grace_seconds": stop_grace,
        "workdir": workdir,
        "user": None if user is None else str(user),
    }
    lease = leases.named(run_id)
    if run_id is None and run is not None and lease is not None and lease[0] != run:
        lease = None  # SANDLOT_RUN_ID does not outdo what the caller names
    if lease is None:
        optional["run"] = _run(run)
    else:
        # The lease names the run: SANDLOT_RUN is for creates without one.
        optional.update(run=run or None, run_id=lease[0], run_epoch=lease[1])
    document.update((key, value) for key, value in optional.items() if value is not None)
    return document


def _run(run: str | None) -> str | None:
    """Return the run that the argument or else the environment names; "" is none."""
    if run is not None:
        return None if run == "" else checks.run(run)
    named = os.environ.get("SANDLOT_RUN")
    return checks.run(named, name="SANDLOT_RUN") if named else None
