"""The gateway as the backend sees it: told what is found out, and asked whose an instance is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandlot_contract.ids import SandboxId
from sandlot_kube import clock
from sandlot_kube.ends import Ended

from ...core.backend import Events
from ...core.owners import RecordedEnd


class Reporter:
    events: Events  # from the backend's start on: nothing is found out before it

    def __init__(self, *, local_time: Callable[[float], float]) -> None:
        """`local_time`: this machine's time of one of the API server's."""
        self._local_time = local_time

    def sandbox_over(
        self, sandbox_id: SandboxId, ended: Ended, request: dict[str, Any] | None, *, promised: bool = False
    ) -> None:
        at = clock.seconds(ended.at)
        self.events.sandbox_over(
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
