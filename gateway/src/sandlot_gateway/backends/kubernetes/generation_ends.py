"""Applies ends of sandboxes that other gateways have told, or that the records of reused pods' sandboxes show."""

from __future__ import annotations

from functools import partial

from sandlot_contract.ids import InstanceId

from ...core.owners import RecordedEnd
from .recorder import Recorder
from .timers import KeyedTimers
from .translate import record_key
from .view import View


class GenerationEnds:
    def __init__(self, view: View, *, recorder: Recorder, reset_within: float) -> None:
        """`reset_within`: seconds for the gateway that ended the sandbox to reset its pod and to say so, or to end it."""
        self._view = view
        self._recorder = recorder
        self._resets = KeyedTimers(after=reset_within)

    def ended(
        self, instance_id: InstanceId, generation: int, end: RecordedEnd, *, deleted: bool = False
    ) -> None:
        """Apply an end. `deleted`: by deleting the record, so that every gateway resets the pod."""
        with self._recorder.known_to_all(end.sandbox_id):
            self._view.reporter.events.generation_ended(instance_id, generation, end, retire=deleted)
        key = record_key(instance_id, generation)
        if not deleted and instance_id in self._view.instances and key not in self._resets:
            self._resets.start(key, partial(self._look, instance_id, generation))

    def close(self) -> None:
        self._resets.close()

    def _look(self, instance_id: InstanceId, generation: int) -> None:
        """Ask a sidecar that is still there at this generation: the gateway may have died before it reset or ended it."""
        seen = self._view.instances.get(instance_id)
        if seen is not None and seen.generation <= generation:
            self._view.states.ask(seen.instance)
