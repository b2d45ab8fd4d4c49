"""Moves the config out of the environment before anything else, so that no sidecar process keeps it there.

A program's initial environment stays readable in /proc/PID/environ, and a fork copies it. So the config goes into
a memfd and the program re-executes itself; only a reader of that descriptor sees the config.
"""

from __future__ import annotations

import os
import sys

from sandlot_contract.sidecar import CONFIG_VARIABLE

FROM_ENVIRONMENT = "--config-env"
BY_DESCRIPTOR = "--config-descriptor"


def begin() -> None:
    """Re-execute the program if its config is in the environment; otherwise return."""
    if sys.argv[1:] != [FROM_ENVIRONMENT]:
        return
    text = os.environ.pop(CONFIG_VARIABLE, "")
    if not text:
        sys.stderr.write(
            f"sandlot_sidecar: {FROM_ENVIRONMENT} needs the config as JSON in {CONFIG_VARIABLE}\n"
        )
        sys.exit(2)
    # Not a pipe: a pipe holds 64 KiB only.
    file = os.memfd_create("config", os.MFD_CLOEXEC)
    os.write(file, os.fsencode(text))
    os.lseek(file, 0, os.SEEK_SET)
    os.set_inheritable(file, True)
    options = sys.orig_argv[1 : -len(sys.argv[1:])]
    os.execv(sys.executable, [sys.orig_argv[0], *options, BY_DESCRIPTOR, str(file)])


def source() -> str | int:
    """Return where to read the config: a path or a descriptor."""
    return int(sys.argv[2]) if sys.argv[1] == BY_DESCRIPTOR else sys.argv[2]


def close() -> None:
    """Close the config unread, so that the executor can never read it."""
    if sys.argv[1] == BY_DESCRIPTOR:
        os.close(int(sys.argv[2]))
