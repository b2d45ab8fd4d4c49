"""Training runs: a lease that the processes of a trainer renew, and with which its sandboxes end."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from sandlot._async.client import AsyncClient, default_client
from sandlot._async.heartbeat import Heartbeat
from sandlot._protocol import leases
from sandlot._tasks_async import now, run_blocking, shielded, sleep
from sandlot.errors import NotFound, RunLost, SandlotError
from sandlot.runs import RunInfo, RunReport

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
_STOP_SECONDS = 5.0
_REPORT_SECONDS = 10.0


class AsyncRun:
    """A run that this process renews, from a thread, until the block ends; then its sandboxes are deleted.

    Sandboxes that this process and those that it starts create meanwhile belong to the run, by SANDLOT_RUN_ID. If no
    process renews it for `grace` seconds, as after a SIGKILL, the server ends them with the verdict `run_lost`.
    `take_over`: also from a holder that still renews it, as when a trainer resumes before its old lease is over; the old
    one gets RunLost. `end_sandboxes`: end those of earlier holders then. `weight` from 1 to 1000: with 3, the run has
    three turns in the queue for each of another run of the tenant with 1. `priority` from -100 to 100: while its creates
    wait, those of the tenant's runs of lower priority get no turns; weights count among runs of one priority.
    `on_lost` is called in the thread. `report`: the file of an HTML page about the run, written at the end of the
    block; if that fails, the log has a warning.
    Entering raises Conflict if another holder has the run. A forked child that leaves the block ends nothing.
    """

    def __init__(
        self,
        run_id: str,
        *,
        grace: float = 60.0,
        take_over: bool = False,
        end_sandboxes: bool = False,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        weight: int = 1,
        priority: int = 0,
        on_lost: Callable[[SandlotError], None] | None = None,
        report: str | os.PathLike[str] | None = None,
        client: AsyncClient | None = None,
    ) -> None:
        self._run_id, self._epoch = leases.reference(run_id)
        self._body = leases.begin_body(
            holder=leases.new_holder(),
            grace=grace,
            name=name,
            metadata=metadata,
            take_over=take_over,
            end_sandboxes=end_sandboxes,
            weight=weight,
            priority=priority,
        )
        self._report = (
            None if report is None else Path(report).absolute()
        )  # the program may change its directory
        if self._report is not None and self._report.is_dir():
            raise ValueError(f"report: {report} is a directory; name a file, such as run.html")
        self._joins = False
        self._wait = 0.0
        self._on_lost = on_lost
        self._client = client
        self._info: RunInfo | None = None
        self._heartbeat: Heartbeat | None = None
        self._inside: leases.Inside | None = None

    @classmethod
    def join(
        cls,
        run_id: str | None = None,
        *,
        wait: float = 60.0,
        on_lost: Callable[[SandlotError], None] | None = None,
        client: AsyncClient | None = None,
    ) -> AsyncRun:
        """Return a run that another process began, to renew it too, such as in each rank; the end leaves it as it is.

        `run_id` is `ID@EPOCH`, by default SANDLOT_RUN_ID; with `ID` alone, entering waits up to `wait` seconds until
        the run is active, and joins the holder that has it then. Raises ValueError without either.
        """
        found = leases.named(run_id)
        if found is None:
            raise ValueError(f"run_id: name the run to join, or set {leases.VARIABLE}")
        run = cls(found[0], on_lost=on_lost, client=client)
        run._joins, run._wait, run._epoch = True, wait, found[1]
        return run

    async def __aenter__(self) -> AsyncRun:
        client = self._client = self._client or await default_client()
        self._info = info = await (self._joined(client) if self._joins else self._begun(client))
        self._heartbeat = Heartbeat(await client.endpoint(), info, on_lost=self._on_lost)
        self._heartbeat.start()
        self._inside = leases.Inside(info.ref)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (inside := self._inside) is not None:
            inside.leave()
            if inside.forked:
                return  # the run is the parent's
        try:
            await shielded(self._leave_quietly if error is not None else self._leave)
        finally:
            if self._report is not None:
                await shielded(self._write_report)

    @property
    def info(self) -> RunInfo:
        """The run as this process began or joined it."""
        if self._info is None:
            raise RuntimeError("the run has not begun: use it in a with block")
        return self._info

    @property
    def id(self) -> str:
        return self._run_id

    @property
    def epoch(self) -> int:
        """The number of the run's holder, greater than that of each earlier one."""
        return self.info.epoch

    @property
    def ref(self) -> str:
        """`ID@EPOCH`, for `join` in other processes and for `run_id` of a create."""
        return self.info.ref

    @property
    def lost(self) -> SandlotError | None:
        """Why the run is not this holder's any more, or None."""
        return self._heartbeat.lost if self._heartbeat is not None else None

    def check(self) -> None:
        """Raise RunLost, or NotFound, if the run is not this holder's any more."""
        if self.lost is not None:
            raise self.lost

    async def _begun(self, client: AsyncClient) -> RunInfo:
        if self._epoch is not None:
            raise ValueError(f"run_id: must be a name without an epoch, not {self._run_id}@{self._epoch}")
        return leases.run_info(await client.call("PUT", leases.path(self._run_id), body=self._body))

    async def _joined(self, client: AsyncClient) -> RunInfo:
        path = leases.path(self._run_id)
        if self._epoch is not None:
            return leases.run_info(await client.call("POST", f"{path}/renew", body={"epoch": self._epoch}))
        deadline = now() + self._wait
        while True:
            late = now() + _LOOK_SECONDS > deadline
            try:
                info = leases.run_info(await client.call("GET", path))
            except NotFound:
                if late:
                    raise
            else:
                if info.active:
                    return info
                if late:
                    raise RunLost(f"run {info.id} is {info.state}: begin it first, with Run")
            await sleep(_LOOK_SECONDS)

    async def _leave(self) -> None:
        heartbeat, client = self._heartbeat, self._client
        if heartbeat is None or client is None:
            return
        await run_blocking(lambda: heartbeat.stop(timeout=_STOP_SECONDS))
        if self._joins or heartbeat.lost is not None:
            return
        try:
            await client.call("DELETE", f"{leases.path(self._run_id)}?epoch={self.epoch}")
        except (RunLost, NotFound):
            return  # another holder has it

    async def _leave_quietly(self) -> None:
        """Leave and ignore failures, which would hide the error that is being raised."""
        try:
            await self._leave()
        except SandlotError:
            return

    async def _write_report(self) -> None:
        """Write the page. A failure must neither hide the block's error nor lose what the program does next."""
        path, client = self._report, self._client
        if path is None or client is None:
            return
        from sandlot.reports.run import page  # only for those who want one

        try:
            found = await AsyncRuns(client=client).report(self._run_id, timeout=_REPORT_SECONDS)
        except SandlotError as error:
            self._without_report(path, error)
            return
        written = page(found)
        try:
            await run_blocking(lambda: written.write(path))
        except OSError as error:
            self._without_report(path, error)

    def _without_report(self, path: Path, error: Exception) -> None:
        _log.warning("the report of run %s could not be written to %s: %s", self._run_id, path, error)


class AsyncRuns:
    """The runs of this key's tenant."""

    def __init__(self, *, client: AsyncClient | None = None) -> None:
        self._client = client

    async def list(self) -> list[RunInfo]:
        """Return the runs, the newest first; those that are over, for an hour."""
        document = await (await self._connected()).call("GET", "/runs")
        return [leases.run_info(item) for item in document.get("runs") or ()]

    async def get(self, run_id: str) -> RunInfo:
        """Return a run, with its sandboxes by status and verdict. Raises NotFound."""
        return leases.run_info(await (await self._connected()).call("GET", leases.path(run_id)))

    async def report(self, run_id: str, *, timeout: float | None = None) -> RunReport:
        """Return what became of a run's sandboxes, what they used, and its slowest commands. Raises NotFound.

        `timeout`: seconds after which it is not asked for again.
        """
        found = await (await self._connected()).call(
            "GET",
            f"{leases.path(run_id)}/report",
            timeout=60.0 if timeout is None else timeout,
            patience=timeout,
        )
        return leases.run_report(found)

    async def end(self, run_id: str) -> RunInfo:
        """End a run, whoever holds it, and delete its sandboxes. Raises NotFound."""
        return leases.run_info(await (await self._connected()).call("DELETE", leases.path(run_id)))

    async def _connected(self) -> AsyncClient:
        if self._client is None:
            self._client = await default_client()
        return self._client
