"""Checks at start whether this user may create namespaces, and explains what to change if not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ...core.backend import BackendError

# Tries what a sandbox needs from the kernel in a separate process; prints the step that failed.
_TRIAL = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000
def check(step, result):
    if result != 0:
        code = ctypes.get_errno()
        print(step, code, os.strerror(code), sep="|")
        sys.exit(1)
uid, gid = os.geteuid(), os.getegid()
if uid:
    check("user", libc.unshare(NEWUSER))
    try:
        open("/proc/self/setgroups", "w").write("deny")
        open("/proc/self/uid_map", "w").write(f"0 {uid} 1")
        open("/proc/self/gid_map", "w").write(f"0 {gid} 1")
    except OSError as error:
        print("user", error.errno, error.strerror, sep="|")
        sys.exit(1)
check("namespaces", libc.unshare(NEWNS | NEWUTS | NEWIPC | NEWPID))
check("mount", libc.mount(b"none", b"/", None, 0x44000, None))
check("mount", libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, b"size=64k"))
"""

_SYSCTLS = (
    ("kernel.unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    (
        "kernel.apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    ("user.max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=16384"),
)


class CannotIsolate(BackendError):
    """This user may not create sandboxes on this machine."""


def check_namespaces(*, sysctls: Path = Path("/proc/sys"), command: tuple[str, ...] = ()) -> None:
    """Raise CannotIsolate with the setting to change. Blocks for some 30 ms."""
    arguments = command or (sys.executable, "-I", "-S", "-c", _TRIAL)
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        raise CannotIsolate(explain(done.stdout or done.stderr, root=os.geteuid() == 0, sysctls=sysctls))


def explain(trial: str, *, root: bool, sysctls: Path = Path("/proc/sys")) -> str:
    """Return the message for a failed trial."""
    step, _, reason = trial.strip().partition("|")
    reason = reason.partition("|")[2] or trial.strip()[-200:]
    if root:
        return (
            f"this root user may not make namespaces or mounts ({step}: {reason}); in a container, start it with "
            "--privileged or --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
        )
    culprits = [
        f"{name} = {value}, change it with `{remedy}`"
        for name, value, remedy in _SYSCTLS
        if _read(sysctls / name.replace(".", "/")) == value
    ]
    why = "; ".join(culprits) or "no sysctl forbids it: a container's seccomp or AppArmor profile may"
    return f"this user may not make user namespaces ({step}: {reason}): {why}; or run the gateway as root"


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
