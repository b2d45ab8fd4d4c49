"""Finds the container of a pod that a sandbox is made in: its first process, by a mark in that one's environment."""

from __future__ import annotations

import os
import time

from sandlot_contract.sidecar import TARGET_VARIABLE

from .errors import SetupError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .namespaces import Home

PATIENCE = 60.0
FIRST_PAUSE, LAST_PAUSE = 0.02, 0.5


def find(home: Home, instance_id: str, *, patience: float = PATIENCE) -> int:
    """Its pid, as soon as it is there. Raises SetupError when it does not come in time."""
    wanted = f"{TARGET_VARIABLE}={instance_id}".encode()
    deadline = time.monotonic() + patience
    pause = FIRST_PAUSE
    while True:
        found = _look(home, wanted)
        if found is not None:
            return found
        if time.monotonic() + pause > deadline:
            raise SetupError(
                f"no process with {TARGET_VARIABLE}={instance_id} came up within {patience:g} s: the sandbox's container did "
                "not start, or does not share its process namespace with the sidecar"
            )
        time.sleep(pause)
        pause = min(pause * 1.5, LAST_PAUSE)


def _look(home: Home, wanted: bytes) -> int | None:
    found: list[tuple[int, int]] = []
    for pid in home.pids():
        try:
            if wanted in home.read(f"{pid}/environ").split(b"\0") and _is_of_the_pod(home, pid):
                found.append((_began(home, pid), pid))
        except OSError:
            continue
    # What is started in the container later (kubectl exec) has the same environment.
    return min(found)[1] if found else None


def _is_of_the_pod(home: Home, pid: int) -> bool:
    """What runs in a sandbox could carry any mark, but has a process namespace of its own."""
    try:
        own, other = (os.stat(f"{name}/ns/pid", dir_fd=home.proc) for name in ("self", str(pid)))
    except OSError:
        return True
    return own.st_ino == other.st_ino


def _began(home: Home, pid: int) -> int:
    return int(home.read(f"{pid}/stat").rpartition(b")")[2].split()[19])


def environment(home: Home, pid: int, *, home_directory: str) -> dict[str, str]:
    """What the image and the pod give every process, without what is ours."""
    env: dict[str, str] = {}
    for entry in home.read(f"{pid}/environ").split(b"\0"):
        name, separator, value = entry.partition(b"=")
        if separator and name:
            env[os.fsdecode(name)] = os.fsdecode(value)
    env.pop(TARGET_VARIABLE, None)
    if env.get("HOME") == home_directory:
        # It was set for the image's user; another one has another.
        del env["HOME"]
    return env


def workdir(home: Home, pid: int) -> str:
    """The image's working directory."""
    try:
        path = os.readlink(f"{pid}/cwd", dir_fd=home.proc)
    except OSError:
        return "/"
    return path if path.startswith("/") else "/"
