"""Takes the config out of the environment before anything else happens, so that no process of ours keeps it there.

The environment a program was started with stays readable in /proc/PID/environ, and a fork copies it. So the config
is put into a file without a name, and the program starts itself again; whoever reads the file has it, nobody else.
"""

from __future__ import annotations

import os
import sys

from sandlot_contract.sidecar import CONFIG_VARIABLE

FROM_ENVIRONMENT = "--config-env"
BY_DESCRIPTOR = "--config-descriptor"


def begin() -> None:
    """Start this program anew when its config is in the environment; returns when it is not, or no longer."""
    if sys.argv[1:] != [FROM_ENVIRONMENT]:
        return
    text = os.environ.pop(CONFIG_VARIABLE, "")
    if not text:
        sys.stderr.write(
            f"sandlot_sidecar: {FROM_ENVIRONMENT} needs the config as JSON in {CONFIG_VARIABLE}\n"
        )
        sys.exit(2)
    # Not a pipe, which holds 64 KiB only.
    file = os.memfd_create("config", os.MFD_CLOEXEC)
    os.write(file, os.fsencode(text))
    os.lseek(file, 0, os.SEEK_SET)
    os.set_inheritable(file, True)
    options = sys.orig_argv[1 : -len(sys.argv[1:])]
    os.execv(sys.executable, [sys.orig_argv[0], *options, BY_DESCRIPTOR, str(file)])


def source() -> str | int:
    """What the config is read from: a path or a descriptor."""
    return int(sys.argv[2]) if sys.argv[1] == BY_DESCRIPTOR else sys.argv[2]


def close() -> None:
    """Let go of the config unread: the executor must not be able to."""
    if sys.argv[1] == BY_DESCRIPTOR:
        os.close(int(sys.argv[2]))
