"""The backend's view of the gateway: reports events to it and asks it who owns an instance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandlot_contract.ids import SandboxId
from sandlot_kube import clock
from sandlot_kube.ends import Ended

from ...core.backend import Events
from ...core.owners import RecordedEnd


class Reporter:
    events: Events  # set by `Backend.start`, before any event

    def __init__(self, *, local_time: Callable[[float], float]) -> None:
        """`local_time` converts the API server's time to this machine's."""
        self._local_time = local_time

    def sandbox_ended_elsewhere(
        self,
        sandbox_id: SandboxId,
        ended: Ended,
        request: dict[str, Any] | None,
        *,
        of_pending_create: bool = False,
    ) -> None:
        self.events.sandbox_ended_elsewhere(
            self.end_of(sandbox_id, ended, request, of_pending_create=of_pending_create)
        )

    def end_of(
        self,
        sandbox_id: SandboxId,
        ended: Ended,
        request: dict[str, Any] | None,
        *,
        of_pending_create: bool = False,
    ) -> RecordedEnd:
        at = clock.seconds(ended.at)
        return RecordedEnd(
            sandbox_id,
            verdict=ended.verdict,
            message=ended.message,
            exit_code=ended.exit_code,
            of_pending_create=of_pending_create,
            request=request,
            at=None if at is None else self._local_time(at),
        )
