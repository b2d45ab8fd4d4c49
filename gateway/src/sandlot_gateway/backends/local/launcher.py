"""Starts one sidecar process, which outlives the gateway, with its directory and config file."""

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

from sandlot_contract.sidecar import WEBHOOK_PATH

from ...core.backend import BackendError
from ...core.claim_images import ClaimImage
from ...core.instances import Instance
from .images import Image
from .layout import InstanceDir, Layout

_LOG_KEEP = 1 << 20  # bytes; a larger sidecar log is truncated


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """Settings that all instances of this gateway share."""

    webhook: str
    bytecode: Path
    images: Path  # the directory of unpacked images
    heartbeat: float = 30.0  # seconds
    hostname: str = "sandbox"

    @classmethod
    def of(cls, layout: Layout, *, heartbeat: float) -> LaunchSettings:
        webhook = f"unix:{layout.gateway_socket}:{WEBHOOK_PATH}"
        return cls(webhook, layout.bytecode, layout.images, heartbeat)


def sidecar_config(
    *,
    instance: Instance,
    directory: InstanceDir,
    image: Image,
    cgroup_parent: str | None,
    mask: Sequence[str],
    gpus: dict[str, Any] | None,
    settings: LaunchSettings,
) -> dict[str, Any]:
    """Return the config file's document, see "Start" in docs/sidecar-contract.md; `mask`: files of the host to hide."""
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
            **image_document(image),
            "mask": list(mask),
            "gpus": gpus,
            "overlay": True,
            "disk": template.disk,
            # A claim may name any image of this machine, whatever this one starts with.
            "images": str(settings.images),
            "host": True,
        },
        "target_pid": None,
        # The limits that a claim of this template names: an equal claim changes nothing.
        "limits": {
            "cpu": template.cpu,
            "memory": template.memory,
            "pids": template.pids,
            "disk": template.disk,
        },
        "cgroup_parent": cgroup_parent,
        "ops": {},
    }


def claim_image(image: Image) -> ClaimImage:
    return ClaimImage(image_document(image), image.command, image.stop_signal)


def image_document(image: Image) -> dict[str, Any]:
    """Return the `image` of a claim, see "Image" in docs/sidecar-contract.md."""
    return {
        "id": image.id,
        "lower": list(image.lower),
        "env": image.env,
        "workdir": image.workdir,
        "user": _user(image),
    }


def _user(image: Image) -> str | int:
    # An ordinary user's namespace has one id: everything runs as its root, which is this user outside.
    if os.geteuid() != 0:
        return "root"
    return int(image.user) if image.user.isdigit() else image.user


def write_config(directory: InstanceDir, config: dict[str, Any]) -> None:
    fd = os.open(directory.config, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        json.dump(config, file)


def spawn(directory: InstanceDir, *, settings: LaunchSettings) -> subprocess.Popen[bytes]:
    """Start the sidecar process in its own session. Raises BackendError."""
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
    # -S skips site-packages' start-up files, a third of the start; -P keeps the working directory off the module path;
    # -OO drops docstrings, 1 MiB a sidecar.
    return [sys.executable, "-S", "-P", "-OO", "-m", "sandlot_sidecar", "--config", str(directory.config)]


def environment(bytecode: Path) -> dict[str, str]:
    """Return the sidecar's environment: of the gateway's own only PATH, because the rest may hold keys."""
    return {
        "PATH": os.environ.get("PATH") or os.defpath,
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(_module_dirs()),
        # Cache byte code here, because packages may be read-only or compiled without -OO: from source, a sidecar
        # takes five times as long to start and 4 MiB more memory.
        "PYTHONPYCACHEPREFIX": str(bytecode),
    }


def _module_dirs() -> list[str]:
    """Return the directories of the sidecar and its imports beyond the standard library."""
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


def last_words(directory: InstanceDir) -> str:
    """Return what the sidecar's log said last, for an error message: the text of its last line."""
    line = _log_tail(directory, size=4096).rpartition("\n")[2]
    try:
        said = json.loads(line)
    except ValueError:
        return line[-600:]
    return str(said.get("message", "") if isinstance(said, dict) else said)[:600]


def _log_tail(directory: InstanceDir, *, size: int) -> str:
    try:
        with open(directory.log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def bound_log(directory: InstanceDir) -> None:
    """Truncate a log that is too large. The sidecar appends, so it continues at the new end."""
    try:
        if os.stat(directory.log).st_size > _LOG_KEEP:
            tail = _log_tail(directory, size=_LOG_KEEP // 8)
            os.truncate(directory.log, 0)
            with open(directory.log, "a", encoding="utf-8", errors="replace") as file:
                file.write(f"[earlier lines were cut]\n{tail}\n")
    except FileNotFoundError:
        return
