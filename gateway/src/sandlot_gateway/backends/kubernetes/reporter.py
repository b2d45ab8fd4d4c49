"""The gateway as the backend sees it: told what is found out, and asked whose an instance is, once it listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandlot_kube import clock
from sandlot_kube.ends import Ended

from ...core.backend import Events
from ...core.instances import Instance
from ...core.owners import RecordedEnd
from ...core.slots import Phase


class Reporter:
    def __init__(self, *, local_time: Callable[[float], float]) -> None:
        """`local_time`: this machine's time of one of the API server's."""
        self._local_time = local_time
        self._events: Events | None = None

    def listen(self, events: Events) -> None:
        self._events = events

    def phase(self, instance_id: str) -> Phase | None:
        return self._events.phase(instance_id) if self._events is not None else None

    def owner(self, instance_id: str) -> str | None:
        return self._events.owner(instance_id) if self._events is not None else None

    def instance_found(self, instance: Instance, state: dict[str, Any]) -> None:
        if self._events is not None:
            self._events.instance_found(instance, state)

    def instance_lost(self, instance_id: str, *, verdict: str, message: str, exit_code: int | None) -> None:
        if self._events is not None:
            self._events.instance_lost(instance_id, verdict=verdict, message=message, exit_code=exit_code)

    def promise_found(self, sandbox_id: str, request: dict[str, Any]) -> None:
        if self._events is not None:
            self._events.promise_found(sandbox_id, request)

    def promise_over(self, sandbox_id: str, ended: Ended) -> None:
        self._over(sandbox_id, ended, promised=True, request=None)

    def sandbox_over(self, sandbox_id: str, ended: Ended, *, request: dict[str, Any] | None) -> None:
        """One that had an instance."""
        self._over(sandbox_id, ended, promised=False, request=request)

    def record_refused(self, what: str) -> None:
        if self._events is not None:
            self._events.record_refused(what)

    def _over(self, sandbox_id: str, ended: Ended, *, promised: bool, request: dict[str, Any] | None) -> None:
        if self._events is not None:
            at = clock.seconds(ended.at)
            self._events.sandbox_over(
                RecordedEnd(
                    sandbox_id,
                    verdict=ended.verdict,
                    message=ended.message,
                    exit_code=ended.exit_code,
                    promised=promised,
                    request=request,
                    at=None if at is None else self._local_time(at),
                )
            )
