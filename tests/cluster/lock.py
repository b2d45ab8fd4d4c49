"""One program at a time builds, starts or takes away the cluster of this machine."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.paths import CACHE
from tests.cluster.shell import say


@contextmanager
def exclusive(
    path: Path = CACHE / "lock", *, why: str = "another program that builds, starts or ends the cluster"
) -> Iterator[None]:
    """Waits until nobody else holds the lock, and holds it; the kernel lets go of it when the process dies.

    `why`: what the one who waits is told to wait for.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for {why}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
