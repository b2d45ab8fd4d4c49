"""Under gVisor: the executor's parent, which takes and reaps orphans that gVisor finds no other parent for.

gVisor searches a new parent for the children of a subreaper's ending descendant among its ancestors, and passes a
subreaper that ends in the same moment. Those of a command end with the sidecar's container, whose first process is the
PID 1 of no namespace. If gVisor finds none it takes the process for its namespace's PID 1 and kills the namespace: all
ops. Linux takes the namespace's PID 1.
"""

from __future__ import annotations

import os
import signal
import socket

from . import init_program, syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


_NAME = "sandlot-reaper"
_server = 0


def server() -> int:
    """Return the server's pid, for the executor."""
    return _server or os.getppid()


def fork_below(control: socket.socket) -> None:
    """Continue in a child, while this process does nothing but reap; `control` is the child's alone."""
    global _server
    _server = os.getppid()
    ours, theirs = socket.socketpair()
    if os.fork():
        theirs.close()
        control.close()
        _reap(ours)
    ours.close()
    # A subreaper takes all orphans of the descendants that have been marked as such when it became one, or have been
    # forked from a marked one; marking passes over another subreaper. So this is one while its parent becomes one, else
    # the parent would also take the orphans that belong to the sandbox's PID 1.
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    theirs.sendall(b"+")
    theirs.recv(1)
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 0)
    theirs.close()


def _reap(ready: socket.socket) -> NoReturn:
    """Become a subreaper until the server's end; the end of `ready` tells the child."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)  # of SIGCHLD: the kernel reaps
    if ready.recv(1):
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        # As the interpreter it would keep a copy of each page that the executor writes to: 8 MiB.
        _execute(init_program.Program())
        syscalls.set_name(_NAME)
    ready.close()
    while True:
        signal.pause()


def _execute(program: init_program.Program) -> None:
    """Execute the program, to sleep for ever; return if it cannot run here."""
    try:
        calls = init_program.Calls(program.machine, memory=init_program.MEMORY)
        calls.add("prctl", syscalls.PR_SET_NAME, _NAME.encode() + b"\0")
        for number in (2, 1, 0):
            calls.add("close", number)
        files = program.files(os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        read, write = os.pipe2(os.O_CLOEXEC)
        os.write(write, calls.packed())
        os.dup2(read, 0)
    except OSError:
        return
    for _, fd in files:
        try:
            os.execve(fd, [_NAME], {})
        except OSError:
            continue
