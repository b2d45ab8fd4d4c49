"""Entry point, `python -m sandlot_sidecar --config FILE`: forks the executor before it reads the config's token."""

from __future__ import annotations

# Modules that both processes use are imported before the fork, which shares their pages (1 MiB, see docs/adr).
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
    """Run the sidecar and return its exit status: 0 after an orderly end, 2 for bad arguments or a bad config."""
    handover.begin()
    if len(sys.argv) != 3 or sys.argv[1] not in ("--config", handover.BY_DESCRIPTOR):
        sys.stderr.write("usage: python -m sandlot_sidecar --config FILE | --config-env\n")
        return 2
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    lean.grow_interned()
    # Garbage collection after the fork would write to every object that both have and copy its page: 0.8 MiB.
    gc.collect()
    gc.freeze()
    if os.fork() == 0:
        ours.close()
        handover.close()
        _executor(theirs)
    theirs.close()
    # From here on this process may hold tokens; the executor, forked before, never can.
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
    """Run the executor and exit; never returns."""
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
