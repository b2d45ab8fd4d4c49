"""Sends the executor's answers, errors and events on its control socket."""

from __future__ import annotations

from . import wire
from .errors import ExecutorError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

    Answer = tuple[dict[str, Any], list[int]]


class Replies:
    """Sends messages; ignores a closed socket, which the next read reports."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control

    def answer(self, seq: Any, answer: Answer) -> None:
        """Send a document and descriptors, and close the descriptors."""
        document, fds = answer
        self.send({"seq": seq, "ok": True, **document}, fds)

    def refuse(self, seq: Any, error: ExecutorError) -> None:
        """Send the error of a failed request."""
        self.send(refusal(seq, error))

    def send(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        """Send a message and descriptors, and close the descriptors."""
        try:
            wire.send(self._control, message, fds or [])
        except OSError:
            return
        finally:
            wire.close_all(fds or [])


def refusal(seq: Any, error: ExecutorError) -> dict[str, Any]:
    """Build the message for a failed request."""
    message = {"seq": seq, "error": error.code, "message": error.message}
    if error.field is not None:
        message["field"] = error.field
    return message


def unexpected(error: Exception) -> ExecutorError:
    """Build the error for an unexpected exception."""
    return ExecutorError(
        "internal", f"unexpected error in the executor: {type(error).__name__}; report it as a bug"
    )
