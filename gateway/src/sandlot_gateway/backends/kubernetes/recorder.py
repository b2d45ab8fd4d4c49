"""Decides which claims and ends this gateway records at once, and which it leaves to another gateway first."""

from __future__ import annotations

from functools import partial

from sandlot_contract.ids import InstanceId
from sandlot_contract.verdicts import SandboxVerdict

from ...core.instances import Instance
from ...core.owners import Claim
from ...core.slots import Loss
from .instances import SeenInstance
from .timers import KeyedTimers
from .view import View


class Recorder:
    def __init__(self, view: View, *, late_record: float, late_end: float) -> None:
        """Seconds until this gateway records another's claim (`late_record`) or an end that another gateway seems to
        have caused (`late_end`), if that one has not.
        """
        self._view = view
        self._late_records = KeyedTimers(after=late_record)
        self._late: dict[InstanceId, Claim] = {}  # instance id -> another gateway's claim without a record
        # Ends that another gateway seems to have caused: recorded here only if that one does not.
        self._late_ends = KeyedTimers(after=late_end)

    def claimed(self, instance: Instance, claim: Claim, *, ours: bool) -> None:
        """Record a claim, see `Backend.claimed`."""
        seen = self._view.instances.get(instance.id)
        if seen is None:
            return
        if ours:
            self._view.states.stop_asking(instance.id)
            self._write_claim(seen, claim)
        elif not self._view.records.confirmed(instance.id, claim.sandbox_id):
            self._expect_record(instance.id, claim)

    def ended(self, instance_id: InstanceId, end: Loss, *, claim: Claim | None, heard: bool) -> None:
        """Record an end, see `Backend.ended`."""
        late = self._late.pop(instance_id, None)
        self._late_records.cancel(instance_id)
        claim = claim or late
        seen = self._view.instances.get(instance_id)
        if seen is None or claim is None:
            return
        if end.verdict == SandboxVerdict.GIVEN_BACK and not self._view.records.confirmed(
            instance_id, claim.sandbox_id
        ):
            return  # it would end the sandbox, in the sandbox's own record
        if end.verdict != SandboxVerdict.GIVEN_BACK:
            self._view.records.name_owner(instance_id, claim, template=seen.instance.template)
        # Also for this gateway's own delete, which the sidecar reports again.
        if self.has_end(instance_id):
            return
        if late is None and self._view.recorded.was_deleted(instance_id):
            return  # which ended it
        write = partial(self.write_end, seen, claim, end)
        if heard and end.verdict == SandboxVerdict.DELETED:
            # Another gateway deleted it, or this one before its restart.
            self._late_ends.start(instance_id, write)
        else:
            write()

    def write_end(self, seen: SeenInstance, claim: Claim | None, end: Loss) -> None:
        """Record the end together with the claim, if there was one, so that the end names its owner."""
        if claim is not None:
            self._write_claim(seen, claim)
        instance = seen.instance
        ended = self._view.records.ending(end)
        self._view.records.end(instance.id, ended, template=instance.template, cold=seen.origin.cold)

    def has_end(self, instance_id: InstanceId) -> bool:
        """Return whether its end is recorded, or will be by this or another gateway."""
        return instance_id in self._late_ends or self._view.recorded.has_end(instance_id)

    def end_seen(self, instance_id: InstanceId) -> None:
        """Drop the deferred write: the end is recorded."""
        self._late_ends.cancel(instance_id)

    def leave(self) -> None:
        """Write all deferred ends now, because this gateway stops."""
        self._late_ends.fire_all()

    def close(self) -> None:
        self._late_records.close()

    def _write_claim(self, seen: SeenInstance, claim: Claim) -> None:
        instance = seen.instance
        self._view.records.claim(
            instance.id, claim, template=instance.template, cold=seen.origin.cold, node=seen.node
        )

    def _expect_record(self, instance_id: InstanceId, claim: Claim) -> None:
        """Wait for another gateway to record its claim, counted from the first report here."""
        self._late[instance_id] = claim
        if instance_id not in self._late_records:
            self._late_records.start(instance_id, partial(self._record_overdue, instance_id))

    def _record_overdue(self, instance_id: InstanceId) -> None:
        claim, seen = self._late.pop(instance_id), self._view.instances.get(instance_id)
        if seen is None or self._view.owner(instance_id) != claim.sandbox_id:
            return
        if not self._view.watches.sandboxes_synced:
            self._expect_record(instance_id, claim)  # it may exist unseen
        elif not self._view.records.confirmed(instance_id, claim.sandbox_id):
            self._write_claim(seen, claim)
