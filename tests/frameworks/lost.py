"""For the scripts that frameworks run: loses a sandbox of this machine, as if its node had failed, or its commands."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from pathlib import Path


def kill_sidecar(marker: str, *, within: float = 60.0) -> None:
    """Kill the sidecar of the stack's sandbox in which a process runs whose command line has `marker`.

    It waits up to `within` seconds for such a process. Sandboxes of other stacks of this machine stay.
    """
    deadline = time.monotonic() + within
    while not (found := _sidecars(marker)):
        assert time.monotonic() < deadline, f"no sidecar has a process with {marker}"
        time.sleep(0.02)
    os.kill(found[0], signal.SIGKILL)


def kill_commands(sandbox_id: str, *, url: str | None = None, api_key: str | None = None) -> None:
    """Kill the running commands of a sandbox through the API, as another client may."""

    url, api_key = url or os.environ["SANDLOT_URL"], api_key or os.environ["SANDLOT_API_KEY"]

    def call(method: str, route: str) -> bytes:
        headers = {"Authorization": f"Bearer {api_key}"}
        request = urllib.request.Request(f"{url}/sbx/{sandbox_id}{route}", method=method, headers=headers)
        with urllib.request.urlopen(request) as response:
            return response.read()

    for op in json.loads(call("GET", "/ops"))["ops"]:
        if op["state"] != "ended":
            call("DELETE", f"/ops/{op['op_id']}")


def with_marker(marker: str) -> list[int]:
    """The processes of this machine, also in sandboxes, whose command line has `marker`."""
    ours = {os.getpid(), os.getppid()}
    pids = map(int, filter(str.isdigit, os.listdir("/proc")))
    return [pid for pid in pids if pid not in ours and _has(pid, marker)]


def _sidecars(marker: str) -> list[int]:
    """The sidecars of this stack that a process with `marker` descends from."""
    state = os.environ["SANDLOT_SCRIPT_STATE"]
    found = [sidecar for pid in with_marker(marker) if (sidecar := _sidecar(pid))]
    return [sidecar for sidecar in found if _has(sidecar, state)]


def _sidecar(pid: int) -> int:
    """The eldest sidecar that a process descends from, whose children have the same command line; 0 if there is none."""
    sidecar = 0
    while pid > 1:
        if _has(pid, "sandlot_sidecar"):
            sidecar = pid
        try:
            pid = _parent(pid)
        except OSError:  # it has just ended
            return 0
    return sidecar


def _has(pid: int, text: str) -> bool:
    try:
        return text.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
