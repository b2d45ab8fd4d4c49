"""How many connections a process may have: raises the limit of open files when many are about to be needed."""

from __future__ import annotations

import threading

SPARE = 256  # descriptors that are left to the rest of the program
_lock = threading.Lock()
_most: int | None = None


def most_connections() -> int:
    """Lets this process open as many files as its hard limit allows; returns how many connections that permits."""
    global _most
    with _lock:
        if _most is None:
            _most = _raise_limit()
        return _most


def _raise_limit() -> int:
    try:
        import resource
    except ImportError:
        return 1024
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = hard if hard != resource.RLIM_INFINITY else 1 << 20
    if soft != resource.RLIM_INFINITY and soft < target:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
            soft = target
        except (OSError, ValueError):
            pass
    if soft == resource.RLIM_INFINITY:
        soft = 1 << 20
    return max(16, min(soft, 1 << 16) - SPARE)
