"""What the executor says on its control socket: answers, refusals and events."""

from __future__ import annotations

from . import wire
from .errors import ExecutorError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

    Answer = tuple[dict[str, Any], list[int]]


class Replies:
    """Sends them; a server that is gone is no error here: the next read says so."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control

    def answer(self, seq: Any, answer: Answer) -> None:
        """A document and descriptors, which are closed here."""
        document, fds = answer
        self.send({"seq": seq, "ok": True, **document}, fds)

    def refuse(self, seq: Any, error: ExecutorError) -> None:
        """A request that failed."""
        self.send(refusal(seq, error))

    def send(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        """A message as it is, and descriptors, which are closed here."""
        try:
            wire.send(self._control, message, fds or [])
        except OSError:
            return
        finally:
            wire.close_all(fds or [])


def refusal(seq: Any, error: ExecutorError) -> dict[str, Any]:
    """The message for a request that failed."""
    message = {"seq": seq, "error": error.code, "message": error.message}
    if error.field is not None:
        message["field"] = error.field
    return message


def unexpected(error: Exception) -> ExecutorError:
    """The error for an exception that nothing else is known of."""
    return ExecutorError("internal", f"an unexpected failure: {type(error).__name__}")
