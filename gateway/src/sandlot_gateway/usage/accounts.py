"""Counts what sandboxes used: each once, by the gateway that claimed it or, where backends keep records, by its record."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.core.costs import Prices
from sandlot_gateway.core.usage import HOUR, Document, Key, Stay, Totals, day_of
from sandlot_gateway.core.usage_source import RecordedStay, Source, UsageSource
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox

from .changes import with_batch, with_minutes
from .early import add_early, early_beside, mark_early, records
from .journal import Journal
from .sums import Group, Sums, Used

_log = logging.getLogger(__name__)

_FOLD_EVERY = 60.0
_DROP_AFTER = 3600.0  # seconds from the start, and between two looks for documents that are too old
_FOR_CONFLICTS = 0.5  # of the time to leave; the rest is for a document of its own
_MISSED_AFTER = 60.0  # seconds after its claim until a sandbox that no one has is taken for ended


class Accounts:
    """`ran`, `ended` and `dropped` follow the directory. `keep`: days that documents stay."""

    def __init__(
        self,
        path: Path,
        *,
        directory: Directory,
        source: UsageSource,
        keep: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._journal = Journal(path)
        self._source = source
        self._directory = directory
        self._keep = keep
        self._clock = clock
        # A query must not read a document before, and the journal after, sums move from one to the other.
        self._turn = asyncio.Lock()
        self._one_answer = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._drop_at = time.monotonic() + _DROP_AFTER

    def open(self) -> None:
        """Read what an earlier process left. Raises OSError."""
        _ = self._journal.name
        self._journal.load()

    @property
    def name(self) -> str:
        return self._journal.name

    def start(self) -> None:
        """Begin to move sums into documents, once the sandboxes of before a restart are known."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self, *, timeout: float) -> None:
        """Count what has ended, `timeout` seconds at most: this disk may be gone with the gateway's pod."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            async with asyncio.timeout(timeout):
                await self.fold(until=time.monotonic() + timeout * _FOR_CONFLICTS)
        except TimeoutError:
            _log.warning("could not write the usage of ended sandboxes in time; the next start does it")
        self._journal.close()

    def is_ours(self, sandbox: Sandbox) -> bool:
        """Return whether this gateway counts it, and no other does."""
        return self._source.all_here or sandbox.counted_by == self.name

    # What happens to sandboxes.

    def ran(self, sandbox: Sandbox) -> None:
        """Note a sandbox that is RUNNING here."""
        stay = stay_of(sandbox)
        if self.is_ours(sandbox) and stay is not None and self._journal.claimed.get(sandbox.id) != stay:
            self._journal.note_claimed(stay)

    def ended(self, sandbox: Sandbox) -> None:
        if sandbox.id in self._journal.claimed and sandbox.ended_at is not None:
            self._journal.note_ended(sandbox.id, sandbox.ended_at)

    def dropped(self, sandbox: Sandbox) -> None:
        """Forget a sandbox that, against a report, does not run."""
        if sandbox.id in self._journal.claimed:
            self._journal.withdraw(sandbox.id)

    # Sums.

    async def between(
        self,
        since: float,
        until: float,
        *,
        group: Callable[[Key], Group],
        tenant: str | None = None,
        most: int,
        prices: Prices | None = None,
    ) -> dict[Group, Used]:
        """Return the sums of the hours that overlap this time by group, `most` at most.

        Raises BackendError, and TooManyGroups.
        """
        first, last = int(since // HOUR), int(-(-until // HOUR)) - 1
        kept = day_of(self._clock()) - self._keep
        sums = Sums(first=first, last=last, tenant=tenant, group=group, most=most, prices=prices)
        # One at a time: each reads the documents of many days. `fold` waits for one at most, since locks are fair.
        async with self._one_answer, self._turn:
            await self._source.store.load(since=max(day_of(first * HOUR), kept), each=sums.add_document)
            uncounted, stays = self._uncounted(sums.marks, sums.early)
            await asyncio.to_thread(_add, sums, uncounted, stays)
        return sums.groups

    def _uncounted(
        self, marks: dict[Source, list[int]], early: set[str]
    ) -> tuple[list[tuple[Source, Document]], list[tuple[Stay, float]]]:
        """Return what no document has yet: batches, sandboxes that run, and those whose end is too young for one."""
        batches: list[tuple[Source, Document]] = []
        for batch in self._journal.batches:
            source = Source(batch.day, self.name)
            if batch.serial > max(marks.get(source, ()), default=0):
                batches.append((source, batch.sums))
        stays: list[tuple[Stay, float]] = []
        minutes = {source: frozenset(there) for source, there in marks.items()}
        directory, now = self._directory, self._clock()
        live = {sandbox.id: sandbox for sandbox in directory.live() if sandbox.status is Status.RUNNING}
        for recorded in self._source.recorded():
            sandbox_id = recorded.stay.sandbox_id
            if recorded.stay.place in early:
                live.pop(sandbox_id, None)
                continue
            if recorded.end is None or recorded.minute is None:
                if sandbox_id not in live:
                    known = directory.get(sandbox_id)
                    ended = known.ended_at if known is not None else None
                    stays.append((recorded.stay, ended or now))
                continue
            live.pop(sandbox_id, None)
            if recorded.minute not in minutes.get(records(recorded.minute), ()):
                stays.append((recorded.stay, recorded.end))
        for ended in (*self._journal.ended.values(), *self._journal.early.values()):
            if ended.stay.place not in early and not self._source.has_record(ended.stay):
                stays.append((ended.stay, ended.at))
        for sandbox in live.values():
            if stay := stay_of(sandbox):
                stays.append((stay, now))
        return batches, stays

    # From the journal and the records into documents.

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_FOLD_EVERY)
            try:
                await self.fold()
            except Exception:
                _log.exception("cannot write the usage of ended sandboxes, trying again in a minute")

    async def fold(self, *, until: float | None = None) -> None:
        """Move what has ended, and settled, into documents; a failure is logged, and the next call repeats it.

        `until`: the gateway leaves, and until then (monotonic) what has not settled may wait for other gateways' writes.
        """
        try:
            async with self._turn:
                self._find_unseen_ends()
                self._take_ended()
                await self._fold_batches()  # of documents that no other gateway changes
                await self._add_early(until=until)
                if self._source.in_sync:
                    await self._fold_records()
                if time.monotonic() >= self._drop_at:
                    await self._source.store.drop_before(day_of(self._clock()) - self._keep)
                    self._drop_at = time.monotonic() + _DROP_AFTER
        except (BackendError, OSError) as error:
            _log.warning("cannot write the usage of ended sandboxes, trying again in a minute: %s", error)

    def _find_unseen_ends(self) -> None:
        """End the claims of before a restart whose sandboxes no one has any more."""
        now, directory = self._clock(), self._directory
        for sandbox_id, stay in list(self._journal.claimed.items()):
            known = directory.get(sandbox_id)
            if (known is not None and known.live) or now - stay.begin < _MISSED_AFTER:
                continue
            unseen = self._source.unseen
            missed = now if unseen is None else min(now, stay.begin + unseen)
            self._journal.note_ended(sandbox_id, (known and known.ended_at) or missed)

    def _take_ended(self) -> None:
        """Make a batch of the ended sandboxes that have no record, and will get none."""
        now, sums = self._clock(), Totals(bounded=True)
        taken: list[SandboxId] = []
        for sandbox_id, ended in list(self._journal.ended.items()):
            if now - ended.at < self._source.settles:
                continue
            has_record = self._source.has_record(ended.stay)
            if has_record:
                self._journal.withdraw(sandbox_id)
            elif has_record is False:
                sums.add_stay(ended.stay, ended.at)
                taken.append(sandbox_id)
        if taken:
            self._take(taken, sums)
        self._journal.shorten()

    def _take(self, taken: list[SandboxId], sums: Totals) -> None:
        self._journal.take(taken, now=self._clock(), sums=Document().plus(sums, marks=[]))

    async def _add_early(self, *, until: float | None) -> None:
        """Add what an earlier process was adding as it left; `until`: and what this one has, as it leaves."""
        if until is not None:
            mark_early(self._journal, self._source)
        left = await add_early(self._journal, self._source, until=until or 0.0)
        if left and until is not None:
            # If a record appears, they count twice. Kept for the next process, they may be lost with this one's pod.
            sums = Totals(bounded=True)
            for ended in left:
                sums.add_stay(ended.stay, ended.at)
            self._take([ended.stay.sandbox_id for ended in left], sums)
            await self._fold_batches()

    async def _fold_batches(self) -> None:
        failed: set[int] = set()
        for batch in list(self._journal.batches):
            # A later serial in its document would say that this one's sums are there.
            if batch.day in failed:
                continue
            if await self._change(Source(batch.day, self.name), with_batch(batch.serial, batch.sums)):
                self._journal.done(batch)
            else:
                failed.add(batch.day)

    async def _change(self, source: Source, change: Callable[[Document], Document | None]) -> bool:
        """Return whether it worked: one document that cannot be written must not keep back the others."""
        try:
            await self._source.store.change(source, change)
        except BackendError as error:
            what = f"{source.name} counted on day {source.day}"
            _log.warning("cannot write the usage that %s, trying again in a minute: %s", what, error)
            return False
        return True

    async def _fold_records(self) -> None:
        last = int((self._clock() - self._source.records_settle) // 60) - 1
        due: dict[Source, dict[int, list[RecordedStay]]] = defaultdict(dict)
        for recorded in self._source.recorded():
            if recorded.end is not None and recorded.minute is not None and recorded.minute <= last:
                minutes = due[records(recorded.minute)]
                minutes.setdefault(recorded.minute, []).append(recorded)
        for source, minutes in due.items():
            try:
                beside = await early_beside(self._source, source, minutes)
            except BackendError as error:
                _log.warning("cannot read the usage of the day beside, trying again in a minute: %s", error)
            else:
                await self._change(source, with_minutes(minutes, but=beside))


def stay_of(sandbox: Sandbox) -> Stay | None:
    """Return what counts of a sandbox with an instance: from its claim on, what was asked for."""
    if sandbox.started_at is None or sandbox.instance_id is None:
        return None
    spec = sandbox.spec
    return Stay(
        sandbox.id,
        sandbox.tenant,
        spec.run or "",
        spec.cpu_cores,
        spec.memory_gb,
        spec.disk_size_gb,
        spec.gpu_count,
        sandbox.started_at,
        sandbox.instance_id,
        sandbox.generation,
        spec.gpu_type or "",
    )


def _add(sums: Sums[Group], batches: list[tuple[Source, Document]], stays: list[tuple[Stay, float]]) -> None:
    for source, document in batches:
        sums.add_document(source, document)
    sums.add_stays(stays)
