"""Finds the pod's container to build the sandbox in: its first process, by a variable in the environment."""

from __future__ import annotations

import os
import time

from sandlot_contract.sidecar import TARGET_VARIABLE

from .errors import SetupError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .namespaces import Home

TIMEOUT = 60.0
FIRST_PAUSE, LAST_PAUSE = 0.02, 0.5


def find(home: Home, instance_id: str, *, timeout: float = TIMEOUT) -> int:
    """Wait for the container's first process and return its pid. Raises SetupError after `timeout` seconds."""
    wanted = f"{TARGET_VARIABLE}={instance_id}".encode()
    deadline = time.monotonic() + timeout
    pause = FIRST_PAUSE
    while True:
        found = _find_once(home, wanted)
        if found is not None:
            return found
        if time.monotonic() + pause > deadline:
            raise SetupError(
                f"no process with {TARGET_VARIABLE}={instance_id} came up within {timeout:g} s: the sandbox's container did "
                "not start, or does not share its process namespace with the sidecar"
            )
        time.sleep(pause)
        pause = min(pause * 1.5, LAST_PAUSE)


def _find_once(home: Home, wanted: bytes) -> int | None:
    found: list[tuple[int, int]] = []
    for pid in home.pids():
        try:
            if wanted in home.read(f"{pid}/environ").split(b"\0") and _shares_pid_namespace(home, pid):
                found.append((_start_time(home, pid), pid))
        except OSError:
            continue
    # Later processes of the container (kubectl exec) have the same environment: take the oldest.
    return min(found)[1] if found else None


def _shares_pid_namespace(home: Home, pid: int) -> bool:
    """Return whether a process is in the pod's PID namespace: one in a sandbox could forge the variable."""
    try:
        own, other = (os.stat(f"{name}/ns/pid", dir_fd=home.proc) for name in ("self", str(pid)))
    except OSError:
        return True
    return own.st_ino == other.st_ino


def _start_time(home: Home, pid: int) -> int:
    return int(home.read(f"{pid}/stat").rpartition(b")")[2].split()[19])


def environment(home: Home, pid: int, *, home_directory: str) -> dict[str, str]:
    """Return the container's environment without the sidecar's variable."""
    env: dict[str, str] = {}
    for entry in home.read(f"{pid}/environ").split(b"\0"):
        name, separator, value = entry.partition(b"=")
        if separator and name:
            env[os.fsdecode(name)] = os.fsdecode(value)
    env.pop(TARGET_VARIABLE, None)
    if env.get("HOME") == home_directory:
        # It belongs to the image's user; an op of another user needs its own.
        del env["HOME"]
    return env


def workdir(home: Home, pid: int) -> str:
    """Return the image's working directory."""
    try:
        path = os.readlink(f"{pid}/cwd", dir_fd=home.proc)
    except OSError:
        return "/"
    return path if path.startswith("/") else "/"
