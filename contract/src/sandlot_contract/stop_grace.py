"""How long a start command may take to exit after its stop signal, before SIGKILL, and what a sidecar says meanwhile."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # every sidecar imports this module, and has not the memory for typing

STOP_GRACE = 1.0  # seconds, unless a request sets another
MAX_STOP_GRACE = 5.0  # a reset waits for it, and callers wait at most 10 s for a reset
STOPPING = "stopping"  # state of a start command that has its grace


def is_stopping(state: dict[str, Any]) -> bool:
    """Return whether a state document, such as the answer to an end, says that the start command has its grace."""
    match state:
        case {"start_command": {"state": str(told)}}:
            return told == STOPPING
        case _:
            return False
