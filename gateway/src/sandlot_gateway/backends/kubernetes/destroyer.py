"""Destroys instances: asks the sidecar to end, then writes what giving_up.py decides."""

from __future__ import annotations

import asyncio
import logging

from sandlot_contract.ids import InstanceId
from sandlot_contract.verdicts import SandboxVerdict

from ...core.slot import Loss, Phase
from ...sidecars import EndAnswer, Sidecars
from .giving_up import Outcome, Written, decide
from .instances import Origin, SeenInstance
from .recorder import Recorder
from .view import View

_log = logging.getLogger(__name__)


class Destroyer:
    def __init__(self, view: View, *, recorder: Recorder, sidecars: Sidecars) -> None:
        self._view = view
        self._recorder = recorder
        self._sidecars = sidecars

    async def destroy(self, instance_id: InstanceId, *, given_back: bool = False) -> None:
        """Destroy an instance, see `Backend.destroy`."""
        seen = self._view.instances.get(instance_id)
        if seen is None:
            return
        if not seen.reused and self._recorder.has_end(instance_id):
            self._remove(seen)
            return
        gone = self._view.phase(instance_id) is Phase.GONE
        answer = EndAnswer.ENDED if gone else await self._sidecars.end_unclaimed(seen.instance)
        seen = self._view.instances.get(instance_id)
        if seen is None:
            return
        # If this gateway heard only its last report, the gateway that claimed it or the controller records the end.
        claimed = self._view.recorded.has_owner(instance_id) or self._recorder.has_end(instance_id)
        written = Written(
            cold=seen.origin.cold,
            claimed=claimed or (gone and seen.origin is not Origin.OWN_START),
            blind=self._view.watches.failure is not None,
            given_back=given_back,
            reused=seen.reused,
        )
        phase = self._view.phase(instance_id)
        outcome = decide(answer, phase, written)
        if outcome is Outcome.KEEP:
            return
        if outcome is Outcome.ASK:
            self._view.states.ask(seen.instance)
            if answer.unheard:
                self._recorder.silent(instance_id)
            return
        self._remove(seen)
        if outcome is Outcome.DROP:
            self._view.records.drop(instance_id, template=seen.instance.template)
        elif outcome is Outcome.GIVE_BACK:
            self._recorder.write_end(seen, None, Loss(SandboxVerdict.GIVEN_BACK, "its claim failed"))
        elif outcome is Outcome.WRITE_END:
            self._recorder.write_end(seen, None, Loss(SandboxVerdict.SANDBOX_LOST, "the gateway gave it up"))
        if phase not in (None, Phase.ENDING, Phase.GONE):  # its sidecar ended while it was warm
            self._view.reporter.events.instance_lost(
                instance_id, Loss(SandboxVerdict.START_FAILED, "it was given up")
            )

    async def destroy_all(self, *, timeout: float) -> None:
        """Destroy this gateway's instances, see `Backend.destroy_all`."""
        own = [
            seen.instance.id
            for seen in self._view.instances
            if seen.origin.cold or (not seen.reused and self._recorder.has_end(seen.instance.id))
        ]
        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(self.destroy(instance_id) for instance_id in own))
        except TimeoutError:
            _log.warning("gave up sidecars that did not end; the controller ends them, as their records say")

    def _remove(self, seen: SeenInstance) -> None:
        self._recorder.settled(seen.instance.id)
        self._view.states.forget(seen.instance.id)
        self._view.instances.remove(seen.instance.id)
