"""For mutation tests: ends the process, as a limit of CPU time would, when a test hangs.

A limit of wall-clock time would take a test for hanging that only waits for its turn on a busy machine. So this counts
the time in which the process neither runs nor waits for a CPU, which other processes cannot lengthen.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

COMPUTING = 30.0  # seconds of CPU time, for endless loops
PAUSE = 0.1


class Watch:
    """A thread that looks at the thread that creates it, which runs the tests.

    Its files stay open: a test's leak check must not see them come.
    """

    def __init__(self, *, limit: float) -> None:
        self._limit = limit
        self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._children = os.open("/proc/thread-self/children", os.O_RDONLY)
        self._test = ""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hangs", daemon=True)
        self._thread.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._test = nodeid

    def close(self) -> None:
        self._end.set()
        self._thread.join()
        os.close(self._schedstat)
        os.close(self._children)

    def _run(self) -> None:
        test, blocked, computed = self._test, 0.0, 0.0
        at, active = time.monotonic(), self._active()
        while not self._end.wait(PAUSE):
            if test != self._test:
                test, blocked, computed = self._test, 0.0, time.process_time()
            before, active_before = at, active
            at, active = time.monotonic(), self._active()
            # A child process may need long on a busy machine; the run's own limit ends what waits for one for ever.
            if not os.pread(self._children, 1, 0):
                blocked += (at - before) - (active - active_before)
            if test and (blocked > self._limit or time.process_time() - computed > COMPUTING):
                os.kill(os.getpid(), signal.SIGXCPU)

    def _active(self) -> float:
        """Return the seconds in which the thread of the tests ran or waited for a CPU."""
        running, waiting, _ = os.pread(self._schedstat, 100, 0).split()
        return (int(running) + int(waiting)) / 1e9


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--hang-after", type=float, default=5.0, help="seconds without work after which a test hangs"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[None]:
    if session.config.option.collectonly:  # mutmut's server collects, and then waits itself
        return (yield)
    watch = Watch(limit=session.config.option.hang_after)
    session.config.pluginmanager.register(watch)
    try:
        return (yield)
    finally:
        session.config.pluginmanager.unregister(watch)
        watch.close()
