"""Decides which claims and ends this gateway records at once, which later, and which it leaves to another gateway first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import msgspec
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.template import Template
from sandlot_contract.verdicts import SandboxVerdict
from sandlot_kube import clock

from ...core.instances import Instance
from ...core.owners import Claim, RecordedEnd
from ...core.slot import Loss, Phase
from .instances import SeenInstance
from .timers import KeyedTimers
from .translate import record_key
from .view import View

Announce = Callable[[InstanceId, int, RecordedEnd], None]


@dataclass(slots=True)
class _Expected:
    """A claim whose record another gateway writes, or this one later. `written`: the record has been seen."""

    claim: Claim
    written: bool


class Recorder:
    """A sandbox in a reused pod gets a record only once it has lived for a while; one that ends before gets none."""

    def __init__(
        self, view: View, *, announce: Announce, late_record: float, late_end: float, young: float
    ) -> None:
        """Seconds until this gateway records another's claim (`late_record`) or an end that another gateway seems to
        have caused (`late_end`), if that one has not. `young`: until a sandbox in a reused pod gets its record.

        `announce`: tells other gateways the end of a sandbox, whose record they see later, or never.
        """
        self._view = view
        self._announce = announce
        self._young = young
        self._late_record = late_record
        self._claims = KeyedTimers(after=late_record)
        self._expected: dict[InstanceId, _Expected] = {}
        # Ends that another gateway seems to have caused: recorded here only if that one does not.
        self._late_ends = KeyedTimers(after=late_end)
        self._known_to_all: SandboxId | None = None
        # reused instance -> its last sandbox, which ended without a record
        self._unreset: dict[InstanceId, tuple[Claim, Loss]] = {}
        self._silent = KeyedTimers(after=late_record)  # such instances whose sidecar does not answer

    def claimed(self, instance: Instance, claim: Claim, *, ours: bool) -> None:
        """Record a claim, see `Backend.claimed`."""
        seen = self._view.instances.get(instance.id)
        if seen is None:
            return
        if ours:
            self._view.states.stop_asking(instance.id)
        if seen.reused and self._view.recorded.has_record(instance.id, claim.generation):
            return
        if ours and (not seen.reused or self._view.records.pending_creates.has(claim.sandbox_id)):
            self._forget(instance.id)
            self._write_claim(seen, claim)
        elif ours or not self._view.records.confirmed(instance.id, claim.sandbox_id):
            self._expect_record(seen, claim, ours=ours)

    def claim_seen(self, instance_id: InstanceId, owner: SandboxId) -> None:
        """Note that the claim is recorded: when the record goes, a user deleted it."""
        expected = self._expected.get(instance_id)
        if expected is not None and expected.claim.sandbox_id == owner:
            expected.written = True

    def ended(self, instance_id: InstanceId, end: Loss, *, claim: Claim | None, heard: bool) -> None:
        """Record an end, see `Backend.ended`."""
        expected = self._expected.get(instance_id)
        if expected is not None and (claim is None or claim.sandbox_id == expected.claim.sandbox_id):
            self._forget(instance_id)
            claim = claim or expected.claim
        else:
            expected = None
        if claim is None:
            return
        seen = self._view.instances.get(instance_id)
        if end.verdict == SandboxVerdict.GIVEN_BACK:
            # The claim's end, not the sandbox's: it would end the sandbox in any record but that of a start made for it.
            if seen is None or seen.reused or not self._view.records.confirmed(instance_id, claim.sandbox_id):
                return
        else:
            # Also without the pod: the sandbox's own gateway may not know why that is over.
            self._tell(instance_id, claim, end)
            if seen is None:
                return
            if seen.reused:
                self._generation_ended(seen, claim, end, heard=heard)
                return
            self._view.records.name_owner(instance_id, claim, template=seen.instance.template)
        # Also for this gateway's own delete, which the sidecar reports again.
        if self.has_end(instance_id):
            return
        unwritten = expected is not None and not expected.written
        if not unwritten and self._view.recorded.was_deleted(instance_id):
            return  # which ended it
        self._write_or_wait(seen, claim, end, heard=heard)

    def write_end(self, seen: SeenInstance, claim: Claim | None, end: Loss) -> None:
        """Record the end together with the claim, if there was one, so that the end names its owner."""
        if claim is not None:
            self._write_claim(seen, claim)
        instance = seen.instance
        ended = self._view.records.ending(end)
        if claim is not None:
            ended = msgspec.structs.replace(ended, started_at=clock.text(claim.at))
        self._view.records.end(
            instance.id,
            ended,
            template=_template(seen, claim),
            cold=seen.origin.cold,
            generation=None if claim is None else _generation(seen, claim),
        )

    def has_end(self, instance_id: InstanceId, generation: int | None = None) -> bool:
        """Return whether its end is recorded, or will be by this or another gateway."""
        return record_key(instance_id, generation) in self._late_ends or self._view.recorded.has_end(
            instance_id, generation
        )

    def end_seen(self, instance_id: InstanceId, generation: int | None) -> None:
        """Drop the deferred write: the end is recorded."""
        self._late_ends.cancel(record_key(instance_id, generation))

    @contextmanager
    def known_to_all(self, sandbox_id: SandboxId | None) -> Iterator[None]:
        """Do not announce this sandbox's end: it comes from its record or from another gateway."""
        self._known_to_all = sandbox_id
        try:
            yield
        finally:
            self._known_to_all = None

    # Reused pods.

    def reached(self, seen: SeenInstance) -> None:
        """Record the ends of earlier generations that no gateway has recorded: it died after the reset."""
        for generation in self._view.recorded.without_end(seen.instance.id, seen.generation):
            key = record_key(seen.instance.id, generation)
            if key not in self._late_ends:
                self._late_ends.start(key, partial(self._end_outdated, seen, generation))

    def settled(self, instance_id: InstanceId) -> None:
        """Forget the last sandbox of a reused instance, which has been reset or has ended."""
        self._unreset.pop(instance_id, None)
        self._silent.cancel(instance_id)

    def silent(self, instance_id: InstanceId) -> None:
        """Record the last sandbox after all if its sidecar stays silent, so that the controller ends the pod."""
        if instance_id in self._unreset and instance_id not in self._silent:
            self._silent.start(instance_id, partial(self._stayed_silent, instance_id))

    def record_now(self, sandbox_id: SandboxId) -> None:
        """Record the claim of this sandbox now, if it waits for its time."""
        for instance_id, expected in list(self._expected.items()):
            seen = self._view.instances.get(instance_id)
            if expected.claim.sandbox_id == sandbox_id and seen is not None:
                self._forget(instance_id)
                self._write_claim(seen, expected.claim)

    def leave(self) -> None:
        """Write all deferred claims and ends now, because this gateway stops."""
        self._claims.fire_all()
        self._late_ends.fire_all()

    def close(self) -> None:
        for timers in (self._claims, self._late_ends, self._silent):
            timers.close()

    # Inside.

    def _generation_ended(self, seen: SeenInstance, claim: Claim, end: Loss, *, heard: bool) -> None:
        instance_id, generation = seen.instance.id, claim.generation
        if not self._view.recorded.has_record(instance_id, generation):
            # It was too young for one, or a user deleted it.
            if not heard:
                self._unreset[instance_id] = claim, end
        elif not self.has_end(instance_id, generation):
            self._write_or_wait(seen, claim, end, heard=heard)

    def _tell(self, instance_id: InstanceId, claim: Claim, end: Loss) -> None:
        if claim.sandbox_id != self._known_to_all:
            self._announce(instance_id, claim.generation, claim.recorded_end(end))

    def _write_or_wait(self, seen: SeenInstance, claim: Claim, end: Loss, *, heard: bool) -> None:
        write = partial(self.write_end, seen, claim, end)
        told = claim.sandbox_id == self._known_to_all
        if heard and (told or end.verdict == SandboxVerdict.DELETED):
            # Another gateway has told it, or deleted the sandbox, or this one did before its restart.
            self._late_ends.start(record_key(seen.instance.id, _generation(seen, claim)), write)
        else:
            write()

    def _stayed_silent(self, instance_id: InstanceId) -> None:
        seen, last = self._view.instances.get(instance_id), self._unreset.pop(instance_id, None)
        if seen is not None and last is not None and self._view.phase(instance_id) in (None, Phase.ENDING):
            self.write_end(seen, *last)

    def _end_outdated(self, seen: SeenInstance, generation: int) -> None:
        end = Loss(SandboxVerdict.DELETED, "it was ended by another gateway")
        self._view.records.end(
            seen.instance.id,
            self._view.records.ending(end),
            template=_template(seen, None),
            cold=False,
            generation=generation,
        )

    def _write_claim(self, seen: SeenInstance, claim: Claim) -> None:
        instance = seen.instance
        self._view.records.claim(
            instance.id,
            claim,
            template=_template(seen, claim),
            cold=seen.origin.cold,
            node=seen.node,
            generation=_generation(seen, claim),
        )

    def _expect_record(self, seen: SeenInstance, claim: Claim, *, ours: bool) -> None:
        """Wait for another gateway to record its claim, counted from the first report here, or for this one's time."""
        instance_id = seen.instance.id
        before = self._expected.get(instance_id)
        if before is not None and before.claim.sandbox_id != claim.sandbox_id:
            self._forget(instance_id)
            before = None
        # The record may have been seen before the sidecar's report.
        written = not seen.reused and self._view.recorded.has_owner(instance_id)
        self._expected[instance_id] = _Expected(claim, written or (before is not None and before.written))
        if instance_id not in self._claims:
            late = 0.0 if ours else self._late_record
            after = late if not seen.reused else self._young + late
            self._claims.start(instance_id, partial(self._record_overdue, instance_id), after=after)

    def _forget(self, instance_id: InstanceId) -> None:
        self._expected.pop(instance_id, None)
        self._claims.cancel(instance_id)

    def _record_overdue(self, instance_id: InstanceId) -> None:
        claim, seen = self._expected.pop(instance_id).claim, self._view.instances.get(instance_id)
        if seen is None or self._view.owner(instance_id) != claim.sandbox_id:
            return
        if not self._view.watches.sandboxes_synced:
            self._expect_record(seen, claim, ours=False)  # it may exist unseen
        elif not self._view.records.confirmed(instance_id, claim.sandbox_id):
            self._write_claim(seen, claim)
            if seen.reused:
                # Another gateway may have ended it, which no record says.
                self._view.states.ask(seen.instance)


def _generation(seen: SeenInstance, claim: Claim) -> int | None:
    return None if not seen.reused else claim.generation


def _template(seen: SeenInstance, claim: Claim | None) -> Template:
    """Return the template of the sandbox: a claim may have laid its image in a pool's pod, which may have none."""
    instance = seen.instance
    if seen.origin.cold or (instance.laid is None and instance.template.image):
        return instance.template
    spec = claim.request.get("spec") if claim is not None else None
    asked = spec.get("image") if isinstance(spec, dict) else None
    laid = instance.laid.id if instance.laid is not None else None
    return replace(instance.template, image=asked or instance.image or laid or "unknown")
