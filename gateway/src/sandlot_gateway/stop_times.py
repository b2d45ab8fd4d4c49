"""How long each wait of a gateway's stop may take: in order, and hurried by a further signal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopTimes:
    """Seconds. A stop may be cancelled at any point and begun again with shorter ones."""

    tls: float  # for connections over TLS to close after the last request
    sandboxes: float  # for all sandboxes to end, where they end with the gateway
    cleanups: float  # of sandboxes that have ended, and for checkpoints that are being written
    backend: float  # for records, news and the removal of instances
    audit: float  # for the last audit records, and meanwhile the last spans of traces


# The docs promise an end 30 s after the drain: LAST_ANSWERS in ending.py, and these without those for sandboxes.
IN_ORDER = StopTimes(tls=5.0, sandboxes=60.0, cleanups=10.0, backend=11.0, audit=1.0)
HURRIED = StopTimes(tls=0.2, sandboxes=0.5, cleanups=0.3, backend=0.8, audit=0.2)
