"""Writes structured logs: one JSON object a line on stderr, with the ids of its request, sandbox and op.

The data plane passes its ids with each line; in the control API they come from the context, as does a trace's in both.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar

from sandlot_contract import logs

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
sandbox_id: ContextVar[str | None] = ContextVar("sandbox_id", default=None)
trace_id: ContextVar[str | None] = ContextVar("trace_id", default=None)

_CONTEXT = {"request": request_id, "sandbox": sandbox_id, "trace_id": trace_id}
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "color_message",
    "taskName",
}


class JsonFormatter(logs.JsonFormatter):
    """Formats `extra` fields as keys of the line, and adds ids from the context."""

    def extra(self, record: logging.LogRecord) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, variable in _CONTEXT.items():
            value = variable.get()
            if value is not None:
                found[name] = value
        for name, value in record.__dict__.items():
            if name not in _STANDARD and value is not None:
                found[name] = value
        return found


def _is_no_refusal(record: logging.LogRecord) -> bool:
    """Filter out uvicorn's error for each WebSocket rejected with a status, with which anybody could fill the log."""
    return record.msg != "ASGI callable returned without completing handshake."


def configure(level: str) -> None:
    """Configure all loggers to write JSON to stderr."""
    logs.configure(level, formatter=JsonFormatter(), warnings_only=("uvicorn", "asyncio"))
    logging.getLogger("uvicorn.error").addFilter(_is_no_refusal)
