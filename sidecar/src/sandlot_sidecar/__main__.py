"""`python -m sandlot_sidecar --config FILE`: forks the executor first, then reads the config with its token."""

from __future__ import annotations

# What both processes import is imported before the fork: its pages are then shared (1 MiB, see docs/adr).
import array
import collections
import contextlib
import enum
import errno
import fcntl
import functools
import gc
import os
import resource
import select
import selectors
import signal
import socket
import sys
import threading
import types
import warnings

from sandlot_contract import frames, framing, headers, phases, verdicts

from . import handover, lean

SHARED = (array, collections, contextlib, enum, errno, fcntl, frames, framing, functools, gc, headers, phases,
          resource, select, selectors, threading, types, verdicts, warnings)  # fmt: skip
lean.import_json()


def main() -> int:
    """Returns the exit status: 0 after an orderly end, 2 for bad arguments or a bad config."""
    handover.begin()
    if len(sys.argv) != 3 or sys.argv[1] not in ("--config", handover.BY_DESCRIPTOR):
        sys.stderr.write("usage: python -m sandlot_sidecar --config FILE | --config-env\n")
        return 2
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    lean.grow_interned()
    # Collections after the fork would write to every object that both have, and so copy its page: 0.8 MiB.
    gc.collect()
    gc.freeze()
    if os.fork() == 0:
        ours.close()
        handover.close()
        _executor(theirs)
    theirs.close()
    # From here on this process may hold tokens; the executor was forked before and never can.
    lean.import_asyncio()
    from .config import ConfigError, read_config
    from .server.main import run

    try:
        config = read_config(handover.source())
    except ConfigError as error:
        sys.stderr.write(f"sandlot_sidecar: {error}\n")
        return 2
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    return run(config, ours)


def _executor(sock: socket.socket) -> None:
    """The executor's whole life; never returns."""
    status = 1
    try:
        from .executor.main import run

        run(sock)
        status = 0
    except KeyboardInterrupt:
        status = 130
    finally:
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
