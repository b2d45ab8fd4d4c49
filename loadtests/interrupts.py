"""A SIGTERM ends a run as ^C does: its main task is cancelled, and takes away what it has made."""

from __future__ import annotations

import signal


def end_in_order() -> None:
    """Call it before `asyncio.run`, which cancels the main task at a SIGINT.

    An exit that a handler raises inside of the loop ends the clean-up of every task with it, and leaves a cluster with
    the chart and its sandboxes.
    """
    # A shell's background job ignores it, and would take no notice of the SIGTERM either.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
