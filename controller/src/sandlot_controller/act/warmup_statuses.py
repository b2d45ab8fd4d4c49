"""Writes the statuses of ImageWarmups, and deletes the resources a while after their end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sandlot_contract.warmups import MAX_ERRORS
from sandlot_kube import clock
from sandlot_kube.warmups import ImageWarmup, WarmupPhase

from ..plan.warmup_progress import Progress
from .api import Api
from .retry import until_done
from .tasks import Tasks

_REST = 60.0  # seconds until a status that needs no write is looked at again


@dataclass(frozen=True, slots=True)
class _Told:
    status: dict[str, Any]
    at: float


@dataclass(frozen=True, slots=True)
class Report:
    """`standing`: its resource says already that it is done."""

    counts: Progress
    seconds_left: float | None
    message: str | None
    standing: bool


class WarmupStatuses:
    """Writes a new phase at once, other changes at most once in `interval` seconds."""

    def __init__(
        self,
        api: Api,
        *,
        interval: float,
        retention: float,
        now: Callable[[], float],
        written: Callable[[], None],
    ) -> None:
        """`now`: a monotonic clock. `written` is called after a write, to look at what changed meanwhile."""
        self._api = api
        self._interval = interval
        self._retention = retention
        self._now = now
        self._written = written
        self._told: dict[str, _Told] = {}
        self._finished: dict[str, ImageWarmup] = {}
        self._writes = Tasks()

    def tell(self, warmup: ImageWarmup, report: Report) -> float:
        """Report a warm-up; returns at once, with the time to call again."""
        name, now = warmup.metadata.name, self._now()
        status = self._status(warmup, report)
        told = self._told.get(name)
        if told is not None:
            if told.status == status or (told.status["phase"] == WarmupPhase.DONE and not report.standing):
                return now + _REST
            if told.status["phase"] == status["phase"] and now < told.at + self._interval:
                return told.at + self._interval
        if self._writes.spawn(name, self._write(warmup, status), then=self._written):
            self._told[name] = _Told(status, now)
        return now + self._interval

    def finished(self, warmup: ImageWarmup) -> None:
        self._finished[warmup.metadata.name] = warmup

    def forget(self, name: str) -> None:
        self._told.pop(name, None)
        self._finished.pop(name, None)

    def delete_old(self) -> None:
        """Begin to delete the resources whose retention is over."""
        since = self._api.now() - self._retention
        for name, warmup in self._finished.items():
            if (clock.seconds(warmup.status.finished_at) or 0.0) < since:
                self._writes.spawn(name, until_done(lambda one=warmup: self._api.delete_warmup(one)))

    async def close(self) -> None:
        await self._writes.close()

    def _status(self, warmup: ImageWarmup, report: Report) -> dict[str, Any]:
        counts = report.counts
        told = self._told.get(warmup.metadata.name)
        here = clock.text(self._api.now())
        return {
            "phase": WarmupPhase.DONE if counts.done or report.standing else WarmupPhase.RUNNING,
            "startedAt": told.status["startedAt"] if told else warmup.status.started_at or here,
            "finishedAt": warmup.status.finished_at if report.standing else here if counts.done else None,
            "ready": counts.ready,
            "failed": counts.failed,
            "copies": counts.copies,
            "copiesReady": counts.copies_ready,
            "bytes": counts.bytes,
            "secondsLeft": None if report.seconds_left is None else round(report.seconds_left),
            "errors": [
                {
                    "image": one.image,
                    "message": one.message,
                    **({} if one.node is None else {"node": one.node}),
                }
                for one in counts.errors[:MAX_ERRORS]
            ],
            "message": report.message,
        }

    async def _write(self, warmup: ImageWarmup, status: dict[str, Any]) -> None:
        await until_done(lambda: self._api.patch_warmup_status(warmup, {"status": status}))
