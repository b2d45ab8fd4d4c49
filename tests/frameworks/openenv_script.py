"""What the provider of OpenEnv does when no server starts, and what it leaves behind; then the page's example, a file.

In one process, as OpenEnv takes 5 s of CPU to import.
"""

from __future__ import annotations

import runpy
import sys
import time
from typing import Any

import sandlot
from sandlot.integrations.openenv import SandlotProvider

CREATE = {"labels": ["openenv"]}
SECONDS = 200.0


def left() -> list[Any]:
    return sandlot.Sandbox.list(labels=["openenv"])


def until_nothing_is_left() -> None:
    """A dropped provider's sandbox is deleted by a thread, since garbage collection may interrupt any code."""
    deadline = time.monotonic() + SECONDS
    while found := left():
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def failures_leave_nothing() -> None:
    provider = SandlotProvider(create=CREATE)
    url = provider.start_container("host", start_command="echo no server; sleep 600")
    try:
        provider.start_container("host")
        raise AssertionError("it started two")
    except RuntimeError as error:
        assert "stop_container first" in str(error)
    try:
        while "no server" not in provider.box.logs():
            time.sleep(0.05)
        provider.wait_for_ready(url, timeout_s=0.5)
        raise AssertionError("it is ready")
    except TimeoutError as error:
        assert "no server" in str(error)
    assert left() == []
    url = provider.start_container("host", start_command="sleep 600")
    left_over = left()[0]
    sandlot.Sandbox.connect(left_over.id).delete()
    try:
        provider.wait_for_ready(url)
        raise AssertionError("it is ready")
    except RuntimeError as error:
        assert left_over.id in str(error)
    try:
        provider.start_container("/no/such/archive.tar", start_command="true")
        raise AssertionError("it started")
    except RuntimeError as error:
        assert "/no/such/archive.tar" in str(error)


failures_leave_nothing()
dropped = SandlotProvider(create=CREATE)
dropped.start_container("host", start_command="sleep 600")
del dropped
until_nothing_is_left()
runpy.run_path(sys.argv[1], run_name="__main__")
