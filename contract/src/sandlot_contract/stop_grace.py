"""How long a start command may take to exit after its stop signal, before SIGKILL."""

from __future__ import annotations

STOP_GRACE = 1.0  # seconds, unless a request sets another
MAX_STOP_GRACE = 5.0  # a reset waits for it, and callers wait at most 10 s for a reset
