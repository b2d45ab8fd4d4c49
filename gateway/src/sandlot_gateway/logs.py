"""Writes structured logs: one JSON object a line on stderr, with the ids of its request, sandbox and op.

The data plane passes its ids with each line; in the control API they come from the context.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from contextvars import ContextVar

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
sandbox_id: ContextVar[str | None] = ContextVar("sandbox_id", default=None)

_CONTEXT = {"request": request_id, "sandbox": sandbox_id}
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "color_message",
    "taskName",
}


class JsonFormatter(logging.Formatter):
    """Formats `extra` fields as keys of the line, and adds ids from the context."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, variable in _CONTEXT.items():
            value = variable.get()
            if value is not None:
                line[name] = value
        for name, value in record.__dict__.items():
            if name not in _STANDARD and value is not None:
                line[name] = value
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def _is_no_refusal(record: logging.LogRecord) -> bool:
    """Filter out uvicorn's error for each WebSocket rejected with a status, with which anybody could fill the log."""
    return record.msg != "ASGI callable returned without completing handshake."


def configure(level: str) -> None:
    """Configure all loggers to write JSON to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(_is_no_refusal)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
