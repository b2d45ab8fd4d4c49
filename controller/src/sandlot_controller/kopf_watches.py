"""Knows whether kopf's watches work, from its failures and from the answers to its requests."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from sandlot_kube import paths
from sandlot_kube.refusals import undefined

_log = logging.getLogger(__name__)
# Seconds after which open watches count as working: a server may fail each one as soon as it is open.
_WORKING = 5.0


class KopfWatches:
    """kopf does not tell this itself. All methods are for the controller's loop."""

    path = "sandboxes and imagewarmups with kopf"  # as in the message of a failure

    def __init__(self, namespace: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.listed = asyncio.Event()  # kopf has listed the warm-ups
        self._warmups = paths.warmups(namespace)
        self._effects = {
            paths.sandboxes(namespace): "ended sandboxes keep their pods",
            self._warmups: "no image warm-up begins",
        }
        self._clock = clock
        self._refused: set[str] = set()  # in this run of kopf, and not answered since
        # Of this run: kopf asks for no collection whose definition is not installed as it begins.
        self._asked_for: set[str] = set()
        self._undefined: set[str] = set()  # not installed when we looked, and not asked for since
        self._open: set[str] = set()
        self._open_since: float | None = None  # all that it asked for
        self._failure: str | None = None  # the last one
        self._failing_since = 0.0

    @property
    def failure(self) -> str | None:
        """Why kopf does not see all changes now; None: it does, or has only begun."""
        missing = [f"{self._effects[path]}, since {undefined(path)}" for path in sorted(self._undefined)]
        return "; ".join(missing) or self._broken

    @property
    def _broken(self) -> str | None:
        """Why what kopf asks for is not watched."""
        return None if self._works else self._failure

    @property
    def _works(self) -> bool:
        return self._open_since is not None and self._clock() - self._open_since >= _WORKING

    @property
    def failing_for(self) -> float:
        """Seconds since they worked. A missing definition does not count: another leader would lack it, too."""
        return 0.0 if self._broken is None else self._clock() - self._failing_since

    @property
    def ignored(self) -> set[str]:
        """The collections that kopf does not watch though it watches others: it found no definition as it began."""
        return self._effects.keys() - self._asked_for if self._works else set()

    def undefined(self, collections: set[str]) -> None:
        """Record that the API server has no definition of these, which kopf ignores."""
        new, self._undefined = collections - self._undefined, set(collections)
        if new:
            _log.error("cannot read %s: %s", self.path, self.failure)

    def asked(self, path: str) -> None:
        """Record that kopf asks for a collection, or to watch it."""
        if path in self._effects:
            self._asked_for.add(path)
            self._undefined.discard(path)

    def ended(self) -> None:
        """kopf has ended, and watches nothing."""
        if self._broken is None:
            self._failure = None  # one that is over, which would count again
        self._open.clear()
        self._asked_for.clear()
        self._refused.clear()
        self._open_since = None

    def failed(self, why: str) -> None:
        """kopf itself has failed, and watches nothing."""
        # Else the end of the other watch, which a rejected token closes, would hide why.
        self._fail(self._failure if self._refused and self._failure else why)
        self.ended()

    def answered(self, path: str, *, watch: bool, wrong: str | None) -> None:
        """kopf has the beginning of an answer. `wrong`: why it is of no use."""
        if path not in self._effects:
            return
        self.asked(path)
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
        if self._broken is None:
            _log.warning("cannot read %s, trying again: %s", self.path, why)
        self.login_failed(why)

    def login_failed(self, why: str) -> None:
        """Record a failure, of which the log tells already: kopf has no token, say."""
        if self._broken is None:
            self._failing_since = self._clock()
        self._failure, self._open_since = why, None
