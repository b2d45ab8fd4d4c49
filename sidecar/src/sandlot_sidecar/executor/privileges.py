"""The capabilities that runners and ops keep outside a pod's container."""

from __future__ import annotations

import os

from . import syscalls

# What Docker leaves to root in a container: chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap,
# net_bind_service, sys_chroot, mknod, audit_write, setfcap. Not net_raw: on the host's
# network a packet socket could read its traffic, with the gateway's keys, and bypass its policies.
CAPABILITIES = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 27, 29, 31))
# For runners: a score set with it is also the minimum that the op may set. Without it, an op could lower its
# oom_score_adj, and the kernel would kill the runner instead. Ops lack it: it is not in the bounding set.
SYS_RESOURCE = 1 << 24


def drop_privileges(permitted: int, *, groups: list[int] | None) -> None:
    """Keep Docker's default capabilities of a container's root, without net_raw, and the `groups` of its root."""
    if groups is not None:
        os.setgroups(groups)
    syscalls.bound_capabilities(CAPABILITIES)
    syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_CLEAR_ALL)
    syscalls.capset((CAPABILITIES | SYS_RESOURCE) & permitted)
    # Between vfork and exec, a child shares this memory inside the sandbox: deny ptrace and /proc/PID/mem.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
