"""Which claims and ends this gateway writes into Sandbox resources, and which it leaves to others for a while."""

from __future__ import annotations

from functools import partial

from sandlot_contract.verdicts import SandboxVerdict

from ...core.instances import Instance
from ...core.owners import Claim
from .instances import Entry, Instances
from .records import Records
from .states import SidecarStates
from .timers import KeyedTimers
from .watches import Watches


class Recorder:
    def __init__(
        self,
        instances: Instances,
        *,
        records: Records,
        states: SidecarStates,
        watches: Watches,
        late_record: float,
        late_end: float,
    ) -> None:
        """In seconds: another gateway's claim without a record gets it from this one after `late_record`, and an end
        that another gateway seems to have asked for is written after `late_end`.
        """
        self._instances = instances
        self._records = records
        self._states = states
        self._watches = watches
        self._late_records = KeyedTimers(after=late_record)  # claims of other gateways without one
        # Ends that another gateway seems to have asked for: this one writes them only where that one does not.
        self._late_ends = KeyedTimers(after=late_end)

    def claimed(self, instance: Instance, claim: Claim, *, ours: bool) -> None:
        """As `Backend.claimed`."""
        entry = self._instances.get(instance.id)
        if entry is None or entry.leaving:
            return
        entry.claim = claim
        if ours:
            entry.heard = True
            self._states.stop_asking(instance.id)
            self._write_claim(entry, claim)
        elif not self._records.confirmed(instance.id, claim.sandbox_id):
            self._expect_record(entry, claim)

    def ended(
        self, instance_id: str, *, verdict: str, message: str | None, exit_code: int | None, heard: bool
    ) -> None:
        """As `Backend.ended`."""
        entry = self._instances.get(instance_id)
        if entry is None:
            return
        entry.over = entry.over or heard
        if entry.claim is None:
            return
        if verdict == SandboxVerdict.GIVEN_BACK and not self._records.confirmed(
            instance_id, entry.claim.sandbox_id
        ):
            entry.claim = None  # written, it would be the sandbox's own record, and its end
            return
        # Of this one's own `deleted`, too: its sidecar says so again, and its pod may end when the Sandbox is removed.
        if entry.end_told or instance_id in self._late_ends or self._records.has_end(instance_id):
            return
        write = partial(self.write_end, entry, verdict=verdict, message=message, exit_code=exit_code)
        if heard and verdict == SandboxVerdict.DELETED:
            # Asked for by another gateway, or by this one before its last start.
            self._late_ends.start(instance_id, write)
        else:
            write()

    def write_end(self, entry: Entry, *, verdict: str, message: str | None, exit_code: int | None) -> None:
        """With its claim, so that the end has an owner."""
        instance = entry.instance
        entry.end_told = True
        if entry.claim is not None:
            self._write_claim(entry, entry.claim)
        ended = self._records.ending(verdict, message=message, exit_code=exit_code)
        self._records.end(instance.id, ended, template=instance.template, cold=entry.cold)

    def leaves_end(self, instance_id: str) -> bool:
        """To the gateway that seems to have asked for it."""
        return instance_id in self._late_ends

    def end_seen(self, instance_id: str) -> None:
        """It is in the Sandbox."""
        self._late_ends.cancel(instance_id)

    def leave(self) -> None:
        """This gateway goes: no end is left to others any more."""
        self._late_ends.fire_all()

    def close(self) -> None:
        self._late_records.close()

    def _write_claim(self, entry: Entry, claim: Claim) -> None:
        instance = entry.instance
        self._records.claim(instance.id, claim, template=instance.template, cold=entry.cold, node=entry.node)

    def _expect_record(self, entry: Entry, claim: Claim) -> None:
        """Of another gateway's claim: that one writes it, unless it has died. Timed from when it is heard of here."""
        if entry.instance.id not in self._late_records:
            self._late_records.start(entry.instance.id, partial(self._record_overdue, entry, claim))

    def _record_overdue(self, entry: Entry, claim: Claim) -> None:
        if entry.leaving or entry.claim is None or self._instances.get(entry.instance.id) is not entry:
            return
        if not self._watches.sandboxes_synced:
            self._expect_record(entry, claim)  # it may be there, unseen
        elif not self._records.confirmed(entry.instance.id, claim.sandbox_id):
            self._write_claim(entry, claim)
