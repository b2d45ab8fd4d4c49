"""For all tests: what they start is interrupted as from a terminal."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    # A shell's background job ignores both, and so would every process that a test starts and interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
