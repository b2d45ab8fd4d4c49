"""Handles SIGTERM like Ctrl-C: the main task is cancelled and cleans up."""

from __future__ import annotations

import signal


def end_in_order() -> None:
    """Turn SIGTERM into SIGINT. Call it before `asyncio.run`, which cancels the main task on SIGINT.

    A handler that raised SystemExit inside the loop would abort every task's cleanup, and leave the chart and its
    sandboxes on a cluster.
    """
    # A shell's background job ignores SIGINT, and would then ignore SIGTERM too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
