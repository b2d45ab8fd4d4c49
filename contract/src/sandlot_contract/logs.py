"""The format of the services' logs: one JSON object per line on stderr."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterable

# json.dumps would make an encoder for each line, which takes as long as the encoding.
_ENCODER = json.JSONEncoder(default=str, ensure_ascii=False)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self.extra(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return _ENCODER.encode(line)

    def extra(self, record: logging.LogRecord) -> dict[str, object]:
        """Return further keys of the line."""
        return {}


def configure(
    level: str, *, formatter: logging.Formatter | None = None, warnings_only: Iterable[str] = ()
) -> None:
    """Send all loggers' records to stderr as JSON; from the loggers named `warnings_only`, no lower levels."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter or JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in warnings_only:
        logging.getLogger(name).setLevel(logging.WARNING)
