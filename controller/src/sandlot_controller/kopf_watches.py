"""Knows whether kopf's watches work, from its failures and from the answers to its requests."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from sandlot_kube import paths

_log = logging.getLogger(__name__)
# Seconds after which open watches count as working: a server may fail each one as soon as it is open.
_WORKING = 5.0


class KopfWatches:
    """kopf does not tell this itself. All methods are for the controller's loop."""

    path = "sandboxes and imagewarmups with kopf"  # as in the message of a failure

    def __init__(self, namespace: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.listed = asyncio.Event()  # kopf has listed the warm-ups
        self._warmups = paths.warmups(namespace)
        self._collections = {paths.sandboxes(namespace), self._warmups}
        self._clock = clock
        self._refused: set[str] = set()  # in this run of kopf, and not answered since
        # Of this run: kopf asks for no collection whose definition is not installed.
        self._asked_for: set[str] = set()
        self._open: set[str] = set()
        self._open_since: float | None = None  # all that it asked for
        self._failure: str | None = None  # the last one
        self._failing_since = 0.0

    @property
    def failure(self) -> str | None:
        """Why kopf does not see all changes now; None: it does, or has only begun."""
        if self._open_since is not None and self._clock() - self._open_since >= _WORKING:
            return None
        return self._failure

    @property
    def failing_for(self) -> float:
        """Seconds since they worked."""
        return 0.0 if self.failure is None else self._clock() - self._failing_since

    def failed(self, why: str) -> None:
        """kopf itself has failed, and watches nothing."""
        self._open.clear()
        self._asked_for.clear()
        # Else the end of the other watch, which a rejected token closes, would hide why.
        self._fail(self._failure if self._refused and self._failure else why)
        self._refused.clear()

    def answered(self, path: str, *, watch: bool, wrong: str | None) -> None:
        """kopf has the beginning of an answer. `wrong`: why it is of no use."""
        if path not in self._collections:
            return
        self._asked_for.add(path)
        if wrong is not None:
            self._open.discard(path)
            self._refused.add(path)
            self._fail(f"{path}: {wrong}")
            return
        self._refused.discard(path)
        if watch:
            self._open.add(path)
        elif path == self._warmups:
            self.listed.set()
        if self._open != self._asked_for:
            self._open_since = None
        elif self._open_since is None:
            self._open_since = self._clock()

    def _fail(self, why: str) -> None:
        if self.failure is None:
            _log.warning("cannot read %s, trying again: %s", self.path, why)
            self._failing_since = self._clock()
        self._failure, self._open_since = why, None
