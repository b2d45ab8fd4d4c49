"""The private stack: finds this user's gateway on this machine, or starts one that ends when idle."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

from sandlot._protocol.http1 import split_url
from sandlot._protocol.messages import Request, TransportError, os_reason
from sandlot.endpoint import Endpoint, endpoint
from sandlot.errors import ConfigError

IDLE_SECONDS = 300
START_SECONDS = 60.0


def state_dir() -> Path:
    """Return the stack's state directory: SANDLOT_HOME, else one of this user that a reboot empties."""
    home = os.environ.get("SANDLOT_HOME")
    if home:
        return Path(home).absolute()
    if os.geteuid() == 0 and os.access("/run", os.W_OK):
        return Path("/run/sandlot")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "sandlot"
    return Path.home() / ".local" / "state" / "sandlot"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value: object = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def key_of(url: str) -> str | None:
    """Return the local stack's API key if `url` is its URL, else None."""
    found = _read(state_dir() / "endpoint.json")
    if found is None or str(found.get("url", "")).rstrip("/") != url.rstrip("/"):
        return None
    return cast("str | None", found.get("api_key"))


def running(directory: Path) -> Endpoint | None:
    """Return the endpoint of the stack that runs in this state directory, or None."""
    found = _read(directory / "endpoint.json")
    if found is None:
        return None
    url, key = found.get("url"), found.get("api_key")
    if not isinstance(url, str) or not isinstance(key, str) or not _alive(url):
        return None
    return endpoint(url=url, api_key=key)


def _alive(url: str) -> bool:
    from sandlot._transport_sync.transport import Transport

    transport = Transport()
    try:
        origin, prefix = split_url(url)
        request = Request("GET", origin, f"{prefix}/readyz", timeout=5.0)
        return transport.request(request).status == 200
    except (TransportError, ValueError):
        return False
    finally:
        transport.close()


def find_or_start(*, directory: Path | None = None) -> Endpoint:
    """Return the private stack's endpoint; start the stack if it does not run. Raises ConfigError if it cannot."""
    directory = directory or state_dir()
    found = running(directory)
    if found is not None:
        return found
    if not sys.platform.startswith("linux"):
        raise ConfigError(
            "a local stack needs Linux: set SANDLOT_URL and SANDLOT_API_KEY to use a server elsewhere"
        )
    from importlib.util import find_spec

    if find_spec("sandlot_gateway") is None:
        raise ConfigError(
            "no server is named (SANDLOT_URL, SANDLOT_API_KEY) and none can be started here: "
            'pip install "sandlot[local]" adds the local stack'
        )
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make the state directory {directory}: {os_reason(error)}; set SANDLOT_HOME"
        ) from error
    with _starting(directory):
        return running(directory) or _start(directory)  # another process may have started it meanwhile


@contextlib.contextmanager
def _starting(directory: Path) -> Generator[None, None, None]:
    """Hold the lock that prevents two processes from starting two stacks."""
    import fcntl

    with (directory / "start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _start(directory: Path) -> Endpoint:
    log = directory / "gateway.log"
    command = [sys.executable, "-m", "sandlot_gateway", "--backend", "local", "--port", "0"]
    command += ["--state-dir", str(directory), "--exit-when-idle", str(IDLE_SECONDS)]
    command += ["--end-sandboxes-on-exit"]
    (directory / "endpoint.json").unlink(missing_ok=True)
    with log.open("ab") as output:
        begin = output.tell()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        found = running(directory)
        if found is not None:
            return found
        if process.poll() is not None:
            raise ConfigError(f"the local stack did not start: {_last_words(log, begin)}")
        time.sleep(0.02)
    process.terminate()
    process.wait()
    raise ConfigError(f"the local stack was not ready within {START_SECONDS:g} s; see {log}")


def _last_words(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:500].removeprefix("sandlot: ") if lines else f"it printed no error; see {log}"
