"""Acts on changes of Sandbox resources by any writer: a new owner or an end."""

from __future__ import annotations

from sandlot_contract.ids import SandboxId
from sandlot_kube.ends import Ended

from ...core.instances import Instance
from ...sidecars import Sidecars
from ...tasks import Tasks
from .generation_ends import GenerationEnds
from .pods import Pods
from .recorder import Recorder
from .sandbox_change import SandboxChange
from .view import View


class SandboxChanges:
    def __init__(
        self,
        view: View,
        *,
        recorder: Recorder,
        pods: Pods,
        generation_ends: GenerationEnds,
        sidecars: Sidecars,
    ) -> None:
        self._view = view
        self._recorder = recorder
        self._pods = pods
        self._generation_ends = generation_ends
        self._sidecars = sidecars
        self._tasks = Tasks()

    def changed(self, change: SandboxChange) -> None:
        """Handle a Sandbox that appeared, got its owner or ended."""
        seen, owner = self._view.instances.get(change.pod), self._view.owner(change.pod)
        if change.generation is not None:
            self._generation_changed(change, change.generation)
        elif change.ended is not None:
            self._recorder.end_seen(change.pod, None)
            if seen is not None and owner is not None and change.deleted:
                # The controller deletes the pod; end the code in it even if no controller runs.
                self._tasks.spawn(self._end_sidecar(seen.instance, change.ended, only_of=owner))
            with self._recorder.known_to_all(change.owner or owner):
                self._pods.lose(change.pod, ended=change.ended)
            if change.owner is not None:
                self._view.reporter.sandbox_ended_elsewhere(change.owner, change.ended, change.request)
        elif change.owner is not None:
            self._recorder.claim_seen(change.pod, change.owner)
            if seen is not None and owner is None:
                self._view.states.ask(
                    seen.instance
                )  # another gateway's claim: poll the sidecar for its owner

    async def close(self) -> None:
        await self._tasks.close()

    def _generation_changed(self, change: SandboxChange, generation: int) -> None:
        """Handle the Sandbox of one generation of a reused pod."""
        if change.owner is None:
            return
        seen = self._view.instances.get(change.pod)
        if change.ended is not None:
            self._recorder.end_seen(change.pod, generation)
            end = self._view.reporter.end_of(change.owner, change.ended, change.request)
            self._generation_ends.ended(change.pod, generation, end, deleted=change.deleted)
        elif seen is not None and seen.generation > generation:
            self._recorder.reached(seen)
        elif seen is not None and self._view.owner(change.pod) != change.owner:
            self._view.states.ask(seen.instance)

    async def _end_sidecar(self, instance: Instance, ended: Ended, *, only_of: SandboxId) -> None:
        await self._sidecars.end(instance, verdict=ended.verdict, message=ended.message, only_of=only_of)
