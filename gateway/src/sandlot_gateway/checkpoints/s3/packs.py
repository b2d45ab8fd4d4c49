"""Holds and lets go of the packs that checkpoints in a bucket share, and reads archives from them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Sequence

from sandlot_gateway.checkpoints.errors import Damaged, StoreError
from sandlot_gateway.checkpoints.interface import OpenArchive
from sandlot_gateway.checkpoints.packing import Holding, Known, worthwhile
from sandlot_gateway.checkpoints.rules import ABANDONED_AFTER, bases
from sandlot_gateway.checkpoints.runs import runs
from sandlot_gateway.checkpoints.s3.archives import Archives
from sandlot_gateway.checkpoints.s3.bucket import Bucket, Object
from sandlot_gateway.checkpoints.s3.holders import Holders
from sandlot_gateway.checkpoints.s3.receiving import PackReading
from sandlot_gateway.checkpoints.s3.records import Held, Record, Seen
from sandlot_gateway.checkpoints.s3.writing import S3Part
from sandlot_gateway.checkpoints.unpacking import Unpacking

_log = logging.getLogger(__name__)


class Packs:
    """Methods raise StoreError."""

    def __init__(self, bucket: Bucket, archives: Archives) -> None:
        self._holders = Holders(bucket)
        self._archives = archives

    def hold(self, part: S3Part, own: Sequence[Seen]) -> Known:
        """Hold packs of a tenant's own checkpoints for one that is being written; return which chunks they have.

        What cannot be held or read is stored again. Raises Deleted, too.
        """
        self._holders.create(part.record.archive)
        records = {one.checkpoint.id: one.record for one in own}
        holding = Holding()
        named: dict[str, Held] = {}
        for one in bases(part.record.checkpoint, [one.checkpoint for one in own]):
            self._learn(records[one.id], holding, named, part)
        return holding.known

    def _learn(self, record: Record, holding: Holding, named: dict[str, Held], part: S3Part) -> None:
        """Hold the packs of one checkpoint; its manifest is not in memory with those of others."""
        try:
            manifest = self._archives.manifest(record.archive, size=record.stored)
        except OSError as error:
            _log.warning("no files of checkpoint %s are shared: %s", record.checkpoint.id, error)
            return
        sizes = _sizes(record)
        wanted = [
            pack for pack in worthwhile(manifest, sizes=lambda pack: sizes.get(pack, 0)) if pack in sizes
        ]
        if not named.keys() >= set(wanted):
            named |= {pack: Held(pack, sizes[pack]) for pack in wanted}
            # First: whoever deletes what no document names must see that this one does.
            part.publish(list(named.values()))
        holding.take(
            manifest,
            sizes=lambda pack: sizes.get(pack, 0),
            hold=lambda pack: pack in sizes and self._holders.enter(pack, part.record.archive),
        )

    def let_go(self, archive: str, held: Iterable[Held]) -> None:
        """Let go of packs of others that an archive does not lie in."""
        for one in held:
            if self._holders.leave(one.pack, archive):
                self._archives.delete(one.pack, complete=True)

    def leave(self, record: Record, *, complete: bool) -> None:
        """Let go of all packs, the own one too; those that nobody else needs are deleted. A second call does nothing.

        `complete`: the own one is known to be.
        """
        self.let_go(record.archive, record.held)
        if (
            not record.checkpoint.packed
        ):  # or a gateway of before has written the document of a packed one again
            self._archives.delete_whole(record.archive, complete=complete)
        if self._holders.leave(record.archive, record.archive):
            self._archives.delete(record.archive, complete=complete)

    def open(self, record: Record) -> OpenArchive:
        """Open the archive of a DURABLE checkpoint. Raises FileNotFoundError if it was deleted, and Damaged."""
        if not record.checkpoint.packed:
            return self._archives.open_whole(record.archive, size=record.stored)
        manifest = self._archives.manifest(record.archive, size=record.stored)
        known = _sizes(record)
        where = runs(manifest)

        def opened(pack: str) -> PackReading:
            if pack not in known:
                raise Damaged(f"its document does not name the pack {pack}")
            return self._archives.reading(pack, runs=where[pack])

        return Unpacking(manifest, opened=opened)

    def listed(self) -> list[tuple[str, Object]]:
        """Return all packs that somebody holds or held, for `sweep`, before the documents are read."""
        return self._holders.listed()

    def sweep(
        self, listed: Iterable[tuple[str, Object]], *, named: Collection[str], ids: Collection[str]
    ) -> set[str]:
        """Delete old packs that are held and that no document names; return those that are left.

        `ids` are the checkpoints whose document cannot be read: while there is one, it may name any.
        """
        left: set[str] = set()
        for pack, found in listed:
            if pack in named or ids or found.age <= ABANDONED_AFTER or not self._holders.give_up(pack, found):
                left.add(pack)
                continue
            with contextlib.suppress(StoreError):  # the next sweep repeats it
                self._archives.delete(pack, complete=False)
        return left


def _sizes(record: Record) -> dict[str, int]:
    """Return the bytes of the packs that an archive may lie in."""
    return {record.archive: record.stored, **{one.pack: one.bytes for one in record.held}}
