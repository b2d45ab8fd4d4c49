"""The shared state that the backend's parts read: instances, records, sidecar states, watches and the ledger."""

from __future__ import annotations

from dataclasses import dataclass

from sandlot_contract.ids import InstanceId, SandboxId

from ...core.slot import Phase
from .instances import Instances
from .recorded import Recorded
from .records import Records
from .reporter import Reporter
from .states import SidecarStates
from .watches import Watches


@dataclass(frozen=True, slots=True)
class View:
    instances: Instances
    records: Records  # for writing
    states: SidecarStates
    watches: Watches
    reporter: Reporter

    @property
    def recorded(self) -> Recorded:
        return self.records.recorded

    def phase(self, instance_id: InstanceId) -> Phase | None:
        return self.reporter.events.phase(instance_id)

    def owner(self, instance_id: InstanceId) -> SandboxId | None:
        return self.reporter.events.owner(instance_id)

    def knows_owner(self, instance_id: InstanceId) -> bool:
        """Return whether this gateway knows the owning sandbox, not only its id: that is all that a restore reports."""
        owner = self.owner(instance_id)
        return owner is not None and self.reporter.events.knows(owner)
