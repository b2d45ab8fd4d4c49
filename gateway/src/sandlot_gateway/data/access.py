"""The access log: one JSON line for a share of the requests, off by default."""

from __future__ import annotations

import json
import logging
import random

log = logging.getLogger("sandlot.access")


class AccessLog:
    """`share` of all requests (0 to 1) get a line; 0 costs one comparison."""

    def __init__(self, share: float) -> None:
        self.share = share

    def write(
        self,
        *,
        method: str,
        route: str,
        status: int | str,
        seconds: float,
        sandbox_id: str,
        op: bytes,
        request_id: bytes,
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
            "sandbox_id": sandbox_id,
            "op_id": op.decode("latin-1") or None,
            "request_id": request_id.decode("latin-1"),
            "queued_ms": round(queued * 1000, 3),
            "verdict": verdict.decode("latin-1") or None,
        }
        log.info(json.dumps(line))
