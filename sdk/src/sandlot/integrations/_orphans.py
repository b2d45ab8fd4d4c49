"""Deletes the sandboxes of a process that died without deleting them: a process of its own, which reads their ids.

It ends with the end of its input, which comes when the process that wrote there has ended, in whatever way.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import IO, cast

from sandlot._sync.client import Client
from sandlot._sync.sandbox import Sandbox
from sandlot.endpoint import Endpoint

PATIENCE = 300.0  # seconds to wait for a server that does not answer or refuses
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0  # seconds between attempts
ATTEMPT = 5.0  # seconds that the client repeats one call: the loop here asks all servers in turn
# All that the watcher needs of the environment, which has secrets and outlives its process in the watcher.
VARIABLES = (
    *("PATH", "HOME", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "PYTHONUSERBASE"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)

Server = tuple[str, str]  # URL and API key

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_watcher: subprocess.Popen[bytes] | None = None
_watched: dict[str, Endpoint] = {}  # by sandbox id; for the next watcher, if one dies


def watch(box: Sandbox) -> None:
    """Have this sandbox deleted when this process has ended, unless `release` comes before."""
    server = box.client.endpoint()
    with _lock:
        _watched[box.id] = server
        _tell(_watch_line(box.id, server))


def release(sandbox_id: str) -> None:
    """Leave this sandbox alone: it is deleted. An id that nobody watches is no error."""
    with _lock:
        if _watched.pop(sandbox_id, None) is not None:
            _tell(_line({"release": sandbox_id}))


def _tell(line: bytes) -> None:
    """Write to the watcher; if there is none, or it has died, start one and tell it of all sandboxes."""
    global _watcher
    if _watcher is not None:
        with suppress(BrokenPipeError):
            if _watcher.poll() is None:
                _pipe(_watcher).write(line)
                return
        code = _watcher.wait()
        _pipe(_watcher).close()
        _log.warning(
            "The process that deletes sandboxes after this one's end has died (exit code %d); starting another.",
            code,
        )
        _watcher = None
    if _watched:
        _watcher = _start()
        for sandbox_id, server in _watched.items():
            with suppress(BrokenPipeError):  # the next call finds it dead
                _pipe(_watcher).write(_watch_line(sandbox_id, server))


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],  # -P: no module of the directory in which an agent works
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={name: os.environ[name] for name in VARIABLES if name in os.environ},
        start_new_session=True,  # else it ends by the signals that end this process
    )


def _pipe(watcher: subprocess.Popen[bytes]) -> IO[bytes]:
    assert watcher.stdin is not None
    return watcher.stdin


def _watch_line(sandbox_id: str, server: Endpoint) -> bytes:
    return _line({"watch": sandbox_id, "url": server.url, "api_key": server.api_key})


def _line(document: dict[str, str]) -> bytes:
    return json.dumps(document).encode() + b"\n"


def _forget() -> None:
    """In a forked child: its parent's sandboxes are not its own, and the pipe must not stay open in it."""
    global _lock, _watcher
    _lock = threading.Lock()
    _watched.clear()
    if _watcher is not None:
        _pipe(_watcher).close()
        _watcher.returncode = 0  # of no child of this process
        _watcher = None


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget)


def main() -> None:
    """Read ids until the input ends; delete the sandboxes that were not released."""
    left: dict[str, Server] = {}
    for line in sys.stdin:
        told = cast("dict[str, str]", json.loads(line))
        if "watch" in told:
            left[told["watch"]] = told["url"], told["api_key"]
        else:
            left.pop(told["release"], None)
    deadline = time.monotonic() + PATIENCE
    pause = FIRST_PAUSE
    while left := _undeleted(left):
        if time.monotonic() + pause > deadline:
            return  # their timeouts end them
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


def _undeleted(left: dict[str, Server]) -> dict[str, Server]:
    """Delete the sandboxes and return those that no server has deleted yet."""
    deleted: set[str] = set()
    for url, api_key in set(left.values()):
        ids = [sandbox_id for sandbox_id, server in left.items() if server == (url, api_key)]
        # Whatever went wrong: the other servers' sandboxes are deleted, and these are tried again.
        with suppress(Exception), Client(url=url, api_key=api_key, retry_for=ATTEMPT) as client:
            client.busy_for = ATTEMPT
            deleted.update(Sandbox.delete_many(ids, client=client).deleted)
    return {sandbox_id: server for sandbox_id, server in left.items() if sandbox_id not in deleted}


if __name__ == "__main__":
    main()
