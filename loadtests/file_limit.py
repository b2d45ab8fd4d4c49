"""The limit of open files of a program with thousands of connections."""

from __future__ import annotations

import resource


def raise_limit() -> None:
    """Raise this process's soft limit to the hard one, for good: only a program may, not a function that a test calls."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
