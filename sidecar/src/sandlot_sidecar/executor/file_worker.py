"""Does a file operation with a sandbox user's rights, in a process that cannot get others: the kernel checks each path."""

from __future__ import annotations

import os
import signal

from . import files, syscalls, users
from .errors import ExecutorError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .replies import Answer


def needs_worker(message: dict[str, Any]) -> bool:
    """Return whether a request names the user that it acts as."""
    return message.get("user") is not None


def work_as(message: dict[str, Any], *, rootless: bool, capabilities: int) -> Callable[[], Answer]:
    """Return the work for a job's process. Raises ExecutorError (field user).

    `capabilities`: those that root's commands have.
    """
    user = users.acting(message["user"])
    if rootless:
        if user.uid or user.gid:
            raise ExecutorError(
                "bad_request",
                f"cannot act as uid {user.uid}: this rootless sandbox has only uid 0; leave user out",
                field="user",
            )
        return lambda: files.run(message)

    def work() -> Answer:
        _become(user, capabilities)
        return files.run(message)

    return work


def _become(user: users.User, capabilities: int) -> None:
    """Take a user's ids, groups and capabilities, for good. Raises OSError."""
    parent = os.getppid()
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    syscalls.capset(capabilities if user.uid == 0 else 0)
    # The host's processes of the same uid could otherwise read this one's descriptors.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    # The change of credentials has cleared it.
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
