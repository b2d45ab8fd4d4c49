"""The capabilities that a runner keeps, and with it its ops, where no pod's container decides."""

from __future__ import annotations

from . import syscalls

# What Docker leaves to root in a container: chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap,
# net_bind_service, sys_chroot, mknod, audit_write, setfcap. Not net_raw: the network is the machine's own, whose
# traffic a packet socket would read, the gateway's keys in it, and past whose policies it would write.
CAPABILITIES = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 27, 29, 31))
# A runner's own: with it a raised oom_score_adj is also the lowest that the op may set. Without, an op takes its score
# back, and the kernel kills the runner in its place. No op has it, since it is not in the bounding set.
SYS_RESOURCE = 1 << 24


def drop_privileges(permitted: int) -> None:
    """Keep the capabilities that Docker leaves to a container's root, less one."""
    syscalls.bound_capabilities(CAPABILITIES)
    syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_CLEAR_ALL)
    syscalls.capset((CAPABILITIES | SYS_RESOURCE) & permitted)
    # The moment between a child's birth and its exec shows this process's memory inside the sandbox.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
