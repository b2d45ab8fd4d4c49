"""Writes the access log: one structured line for a share of the requests, off by default."""

from __future__ import annotations

import logging
import random

log = logging.getLogger("sandlot.access")


def request_ids(request: bytes, *, sandbox: bytes, op: bytes) -> dict[str, str]:
    """Return the ids for a log line, without empty ones."""
    ids = {"request": request, "sandbox": sandbox, "op": op}
    return {name: value.decode("latin-1") for name, value in ids.items() if value}


class AccessLog:
    """Logs a `share` (0 to 1) of all requests; 0 costs one comparison."""

    def __init__(self, share: float) -> None:
        self.share = share

    def write(
        self,
        *,
        method: str,
        route: str,
        status: int | str,
        seconds: float,
        ids: dict[str, str],
        queued: float,
        verdict: bytes,
    ) -> None:
        if random.random() >= self.share:
            return
        line = {
            "method": method,
            "route": route,
            "status": status,
            "ms": round(seconds * 1000, 3),
            "queued_ms": round(queued * 1000, 3),
            **({"verdict": verdict.decode("latin-1")} if verdict else {}),
        }
        log.info("request", extra=line | ids)
