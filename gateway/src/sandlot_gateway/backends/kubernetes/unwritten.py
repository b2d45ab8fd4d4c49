"""The records that this gateway still writes, by pod and generation."""

from __future__ import annotations

from collections.abc import Iterator

from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.template import Template

from .known import KnownSandboxes
from .record import Record
from .translate import record_key


class Unwritten:
    def __init__(self, known: KnownSandboxes) -> None:
        self._known = known
        self._records: dict[str, Record] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(list(self._records.values()))

    def get(self, instance_id: InstanceId, generation: int | None = None) -> Record | None:
        """Return the record of this generation; of a pod that runs a single sandbox (None) its only one."""
        return self._records.get(record_key(instance_id, generation))

    def begin(
        self, instance_id: InstanceId, template: Template, *, cold: bool | None, generation: int | None = None
    ) -> Record:
        """Return the record, after adding it if need be."""
        record = self.get(instance_id, generation)
        if record is None:
            known = self._known.of_pod(instance_id, generation)
            record = Record(instance_id, template, cold, generation)
            if known is not None:
                record.created = True
                record.claim_there = known.claimed
                record.end_there = known.ended is not None
            self._records[record.key] = record
        return record

    def owner_of(self, record: Record) -> SandboxId | None:
        """Return the sandbox that a record is about."""
        known = self._known.of_pod(record.instance_id, record.generation)
        return record.claimed_for or (known.owner if known is not None else None)

    def remove(self, record: Record) -> None:
        self._records.pop(record.key, None)
