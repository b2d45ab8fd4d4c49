"""What a handler notes about its request for the data plane's logs and spans, also if it fails."""

from __future__ import annotations

from ..tracing.trace import Trace
from .run_command import RunCommand


class Progress:
    """One per request; class attributes, since most requests set none."""

    queued: float = 0.0  # seconds spent in the sandbox's queue
    trace: Trace | None = None  # from the authentication on
    command: RunCommand | None = None  # from its turn on, if its sandbox has a run
