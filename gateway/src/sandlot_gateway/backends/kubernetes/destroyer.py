"""Gives instances up: asks the sidecar, and does with the Sandbox what `giving_up.py` decides."""

from __future__ import annotations

from sandlot_contract.verdicts import SandboxVerdict

from ...sidecars import Sidecars
from .giving_up import Outcome, Written, decide
from .instances import Instances
from .recorder import Recorder
from .records import Records
from .states import SidecarStates
from .watches import Watches


class Destroyer:
    def __init__(
        self,
        instances: Instances,
        *,
        records: Records,
        recorder: Recorder,
        states: SidecarStates,
        watches: Watches,
        sidecars: Sidecars,
    ) -> None:
        self._instances = instances
        self._records = records
        self._recorder = recorder
        self._states = states
        self._watches = watches
        self._sidecars = sidecars

    async def destroy(self, instance_id: str) -> None:
        """As `Backend.destroy`."""
        entry = self._instances.get(instance_id)
        if entry is None or entry.leaving:
            return
        before = entry.standing
        answer = "unknown" if before.claimed else await self._sidecars.end_unclaimed(entry.instance)
        known = self._records.of_pod(instance_id)
        written = Written(
            cold=entry.cold,
            end_coming=self._recorder.leaves_end(instance_id),
            # Where only its last words were heard, whoever has claimed it writes its end, or the controller.
            claimed_elsewhere=(known is not None and known.claimed) or (entry.over and not entry.made_here),
            blind=self._watches.failure is not None,
        )
        outcome = decide(before, answer, entry.standing, written)
        if outcome is Outcome.KEEP:
            return
        if outcome is Outcome.ASK:
            self._states.ask(entry)
            return
        entry.leaving = True
        self._states.stop_asking(instance_id)
        if outcome is Outcome.DROP:
            self._records.drop(instance_id, template=entry.instance.template)
        elif outcome is Outcome.WRITE_END:
            self._recorder.write_end(
                entry, verdict=SandboxVerdict.SANDBOX_LOST, message="the gateway gave it up", exit_code=None
            )
