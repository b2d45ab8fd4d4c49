"""Which claims and ends this gateway writes into Sandbox resources, and which it leaves to others for a while."""

from __future__ import annotations

from functools import partial

from sandlot_contract.ids import InstanceId
from sandlot_contract.verdicts import SandboxVerdict

from ...core.instances import Instance
from ...core.owners import Claim
from ...core.slots import Loss
from .instances import Seen
from .timers import KeyedTimers
from .view import View


class Recorder:
    def __init__(self, view: View, *, late_record: float, late_end: float) -> None:
        """In seconds: another gateway's claim without a record gets it from this one after `late_record`, and an end
        that another gateway seems to have asked for is written after `late_end`.
        """
        self._view = view
        self._late_records = KeyedTimers(after=late_record)
        self._late: dict[InstanceId, Claim] = {}  # claims of other gateways that no record tells of yet
        # Ends that another gateway seems to have asked for: this one writes them only where that one does not.
        self._late_ends = KeyedTimers(after=late_end)

    def claimed(self, instance: Instance, claim: Claim, *, ours: bool) -> None:
        """As `Backend.claimed`."""
        seen = self._view.instances.get(instance.id)
        if seen is None:
            return
        if ours:
            self._view.states.stop_asking(instance.id)
            self._write_claim(seen, claim)
        elif not self._view.records.confirmed(instance.id, claim.sandbox_id):
            self._expect_record(instance.id, claim)

    def ended(self, instance_id: InstanceId, end: Loss, *, claim: Claim | None, heard: bool) -> None:
        """As `Backend.ended`."""
        late = self._late.pop(instance_id, None)
        self._late_records.cancel(instance_id)
        claim = claim or late
        seen, known = self._view.instances.get(instance_id), self._view.records.of_pod(instance_id)
        if seen is None or claim is None:
            return
        if end.verdict == SandboxVerdict.GIVEN_BACK and not self._view.records.confirmed(
            instance_id, claim.sandbox_id
        ):
            return  # written, it would be the sandbox's own record, and its end
        if known is not None and known.ended is not None:
            unnamed = known.owner == claim.sandbox_id and not known.told
            if unnamed and end.verdict != SandboxVerdict.GIVEN_BACK:
                self._view.records.name_owner(instance_id, claim, template=seen.instance.template)
            return
        if known is None and late is None and not self._view.records.has_owner(instance_id):
            return  # its Sandbox was deleted, which was its end
        # Of this one's own `deleted`, too: its sidecar says so again.
        if self.has_end(instance_id):
            return
        write = partial(self.write_end, seen, claim, end)
        if heard and end.verdict == SandboxVerdict.DELETED:
            # Asked for by another gateway, or by this one before its last start.
            self._late_ends.start(instance_id, write)
        else:
            write()

    def write_end(self, seen: Seen, claim: Claim | None, end: Loss) -> None:
        """With its claim, if it had one, so that the end has an owner."""
        if claim is not None:
            self._write_claim(seen, claim)
        instance = seen.instance
        ended = self._view.records.ending(end)
        self._view.records.end(instance.id, ended, template=instance.template, cold=seen.origin.cold)

    def has_end(self, instance_id: InstanceId) -> bool:
        """Its Sandbox has it, or will have: from here, or from the gateway that seems to have asked for it."""
        return instance_id in self._late_ends or self._view.records.has_end(instance_id)

    def end_seen(self, instance_id: InstanceId) -> None:
        """It is in the Sandbox."""
        self._late_ends.cancel(instance_id)

    def leave(self) -> None:
        """This gateway goes: no end is left to others any more."""
        self._late_ends.fire_all()

    def close(self) -> None:
        self._late_records.close()

    def _write_claim(self, seen: Seen, claim: Claim) -> None:
        instance = seen.instance
        self._view.records.claim(
            instance.id, claim, template=instance.template, cold=seen.origin.cold, node=seen.node
        )

    def _expect_record(self, instance_id: InstanceId, claim: Claim) -> None:
        """Of another gateway's claim: that one writes it, unless it has died. Timed from when it is heard of here."""
        self._late[instance_id] = claim
        if instance_id not in self._late_records:
            self._late_records.start(instance_id, partial(self._record_overdue, instance_id))

    def _record_overdue(self, instance_id: InstanceId) -> None:
        claim, seen = self._late.pop(instance_id), self._view.instances.get(instance_id)
        if seen is None or self._view.owner(instance_id) != claim.sandbox_id:
            return
        if not self._view.watches.sandboxes_synced:
            self._expect_record(instance_id, claim)  # it may be there, unseen
        elif not self._view.records.confirmed(instance_id, claim.sandbox_id):
            self._write_claim(seen, claim)
