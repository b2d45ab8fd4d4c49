"""The number of connections a process may open; raises its soft limit of open files."""

from __future__ import annotations

import threading

SPARE = 256  # descriptors reserved for the rest of the program
_lock = threading.Lock()
_most: int | None = None


def most_connections() -> int:
    """Raise the soft limit of open files to the hard limit; return how many connections that permits."""
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
