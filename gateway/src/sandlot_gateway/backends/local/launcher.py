"""Starts one sidecar process: its directory, its config file, and a process that outlives the gateway."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.backend import BackendError
from ...core.instances import Instance
from .images import Image
from .layout import InstanceDir

_LOG_KEEP = 1 << 20  # bytes a sidecar's log may have before it is cut


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """What is the same for every instance of this gateway."""

    webhook: str
    bytecode: Path
    heartbeat: float = 30.0  # seconds
    hostname: str = "sandbox"


def sidecar_config(
    *,
    instance: Instance,
    directory: InstanceDir,
    image: Image,
    cgroup_parent: str | None,
    mask: Sequence[str],
    settings: LaunchSettings,
) -> dict[str, Any]:
    """The document of "Start" in docs/sidecar-contract.md; `mask`: paths of the root to hide."""
    template = instance.template
    return {
        "instance_id": instance.id,
        "token": instance.token,
        "listen": instance.address,
        "state_dir": str(directory.path),
        "webhook": settings.webhook,
        "heartbeat": settings.heartbeat,
        "template": template.key,
        "hostname": settings.hostname,
        "root": {
            "lower": list(image.lower),
            "mask": list(mask),
            "overlay": True,
            "disk": template.disk,
            "env": image.env,
            "workdir": image.workdir,
            "user": _user(image),
        },
        "target_pid": None,
        # All that a claim of this template names: a claim that differs in nothing is taken without a change.
        "limits": {
            "cpu": template.cpu,
            "memory": template.memory,
            "pids": template.pids,
            "disk": template.disk,
        },
        "cgroup_parent": cgroup_parent,
        "ops": {},
    }


def _user(image: Image) -> str | int:
    # An ordinary user's namespace has one id: everything in it runs as its root, which is this user outside.
    if os.geteuid() != 0:
        return "root"
    return int(image.user) if image.user.isdigit() else image.user


def write_config(directory: InstanceDir, config: dict[str, Any]) -> None:
    fd = os.open(directory.config, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        json.dump(config, file)


def spawn(directory: InstanceDir, *, settings: LaunchSettings) -> subprocess.Popen[bytes]:
    """The sidecar process, in a session of its own. Raises BackendError."""
    with open(directory.log, "ab") as log:
        try:
            return subprocess.Popen(
                command(directory),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environment(settings.bytecode),
                close_fds=True,
                start_new_session=True,
                umask=0o022,
            )
        except OSError as error:
            raise BackendError(f"cannot start a sidecar: {error.strerror or error}") from error


def command(directory: InstanceDir) -> list[str]:
    # -S: without site-packages' start-up files, which are a third of the start; -P: the working directory is no
    # place for modules; -OO: no docstrings, 1 MiB less in each sidecar.
    return [sys.executable, "-S", "-P", "-OO", "-m", "sandlot_sidecar", "--config", str(directory.config)]


def environment(bytecode: Path) -> dict[str, str]:
    """Nothing of the gateway's own environment but PATH: it may hold keys."""
    return {
        "PATH": os.environ.get("PATH") or os.defpath,
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(_module_dirs()),
        # Byte code is read and written here, also where the packages are read-only or compiled without -OO:
        # from source alone, a sidecar takes five times as long to start and 4 MiB more memory.
        "PYTHONPYCACHEPREFIX": str(bytecode),
    }


def _module_dirs() -> list[str]:
    """The directories that hold the sidecar and what it imports beside the standard library."""
    found: list[str] = []
    for name in ("sandlot_sidecar", "sandlot_contract", "httptools"):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise BackendError(
                f"the package {name} is not installed beside the gateway: pip install it there"
            )
        directory = str(Path(spec.origin).parent.parent)
        if directory not in found:
            found.append(directory)
    return found


def log_tail(directory: InstanceDir, *, size: int = 600) -> str:
    """The end of the sidecar's log, for a message."""
    try:
        with open(directory.log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def bound_log(directory: InstanceDir) -> None:
    """Cuts a log that has become too large. The sidecar appends, so it goes on at the new end."""
    try:
        if os.stat(directory.log).st_size > _LOG_KEEP:
            tail = log_tail(directory, size=_LOG_KEEP // 8)
            os.truncate(directory.log, 0)
            with open(directory.log, "a", encoding="utf-8", errors="replace") as file:
                file.write(f"[earlier lines were cut]\n{tail}\n")
    except FileNotFoundError:
        return
